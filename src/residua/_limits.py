"""Every limit of capacity: how much is taken on before it is refused, or done in a simpler way.

Tolerances, and how long solvers search, stand beside what uses them; limits of the kernel, of noise and of
engines in those rooms.
"""

# Workloads
MOST_TABLES = 20_000_000  # of one workload made by `marginals`: their subsets are held in one array
TABLE_ATTRIBUTES = 60  # of one table; arrays of numpy have at most 64 axes
SPLIT_WAYS = 15  # attributes of a table that is split into pieces: 2^15 of them take about a minute
COUNTABLE = 10**300  # queries whose sums fit a float
EXTREME = 100  # powers of ten that weights, and squares of queries, may reach up or down
READABLE = 150  # the same in files, where there was no bound once: squares of it are still finite
WIDEST = 8_192  # cells of one attribute whose gram matrix is held: half a gigabyte
DENSE_CELLS = 4_096  # of all attributes together, in one dense matrix
PRODUCT_ENTRIES = 20_000_000  # of factors that are multiplied out: 160 MB
MANY_WAYS = 8  # attributes of one table above which a product is found sooner than its 2^n pieces
SAME_TABLES = 1_000  # workloads of more tables are not looked through for being one product
CELL_CLASSES = 50_000  # combinations of classes of cells that one family holds a number for
MATRIX_ENTRIES = 50_000_000  # of one query matrix: 400 MB of float64
CHUNK_ENTRIES = 4_000_000  # of scratch space when rows have to be listed: 32 MB
PREDICATE_CELLS_LISTED = 20  # 2^20 answers; each further cell doubles them
PREDICATE_CELLS_WEIGHED = 1024  # 2^(n-1) on the gram's diagonal is finite up to here
GROUPING_SETS = 4_096  # of one statement: CUBE of 12 columns
MASK_CELLS = 5_000_000  # of one attribute in SQL; masks are held cell by cell
SQL_ENTRIES = 10_000_000  # of queries that are held cell by cell: 80 MB
SQL_WORDS = 20_000  # words and signs of one text; that many are read in a few seconds
SQL_CELLS = 50_000_000  # cells that all conditions of one text look at

# Answering
COVARIANCE_ENTRIES = 10_000_000  # of one covariance matrix: 80 MB
ESTIMATED_CELLS = 20_000_000  # cells of estimated marginals held at once: 160 MB
AGREEMENT_CELLS = 10_000_000  # the same where two releases are compared, which holds both
MOST_ANSWERS = 50_000_000  # that one array may hold: 400 MB
ROWS_AT_ONCE = 2**17  # answers that are put into words at a time: more gain nothing and take more memory
COMBINED_CELLS = 2_500  # joint cells over which classes of cells are refined: their covariance is decomposed
TIED_CELLS = 5_000  # joint cells of factors that have to be multiplied out
DIAGONAL_CELLS = 4_096  # of a matrix that is decomposed into eigenvectors
DIAGONAL_COORDINATES = 100_000_000  # numbers, one a coordinate: 800 MB
DIAGONAL_TERMS = 64  # products that are brought to diagonal form together
SCRATCH = 20_000_000  # numbers held at once while rows are multiplied out: 160 MB
KEPT_VARIANCES = 50_000_000  # numbers kept of variances already listed, and of sums of them: 400 MB
LISTED_QUERIES = 2_000_000  # queries up to which going through all is quicker than choosing candidates
COMBINED_CANDIDATES = 50_000_000  # products of candidates that are gone through
LOOKED_UP_WAYS = 12  # attributes of a table, all of whose subsets are looked up: 2^12
SHARED_DIMENSIONS = 4_096  # that blocks share, in one dense matrix
SHARED_WORK = 2 * 10**11  # multiplications to solve rows of very different size
MULTIPLIED_CELLS = 4_096  # of a block that has to be multiplied out
COUPLED_QUERIES = 20_000_000  # whose variances are gone through to find the largest
KEPT_FIGURES = 4_000_000  # numbers kept of a class of tables, for the next table of that class
COVARIANCE_CELLS = 2_600  # of a table whose variances are read off the covariance of its cells

NOISE_LEVELS = 4_096  # different amounts of noise at the places of one level; more take long to draw
GIVEN_NUMBERS = 2_000  # publicly known ones that any plan's answers are conditioned on, by a dense inverse
GROUPED_PLACES = 20_000  # of all levels, in trees whose uneven siblings are also measured in two groups
PLACE_QUERIES = 2_000_000_000  # times places, of sets that are no places of a level: a minute

PART_NUMBERS = 2**22  # measured numbers of one part of a release of places: 32 MB, several times
WHOLE_NUMBERS = 100_000_000  # measured numbers of all parts that are held at once: 800 MB

# Strategies
COUNTED_CELLS = 100_000_000  # of a marginal that is counted: 800 MB
SPAN_ENTRIES = 20_000_000  # of a query matrix that is listed for its integer rows
FILLED_ROWS = 2_500  # of a block that is made complete: a dense decomposition
BALANCED_ENTRIES = 3 * 10**7  # looked at to balance columns, over all steps
BALANCED_PAIRS = 5 * 10**7  # of entries, over all steps: a larger block has less to gain
REDUCED_ENTRIES = 30_000  # of a matrix that is reduced; more take too long
UNSPENT_CELLS = 1_000_000  # whose unspent privacy is listed
UNSPENT_COSTS = 100_000_000  # costs of cells, over all blocks
COMPARED_CELLS = 2_500  # that are compared with each other, all pairs of them
MOST_RESIDUALS = 5_000_000  # of all blocks that are not centred; planning more of them takes hours

# Methods
PLAIN_CELLS = 256  # of all attributes, up to which one matrix over all of them takes no time
PLAIN_WAYS = 10  # plain attributes of a table, all of whose subsets are measured apart
PLAIN_BLOCKS = 300  # of such subsets of all tables, each with a matrix over the other attributes
COMPARED_PLACES = 128  # cells of an attribute with levels up to which it is also planned without them
VECTOR_CELLS = 256  # joint cells beside places that are measured together: their costs are compared
VECTOR_ENTRIES = 20_000_000  # of a square matrix for every place: 160 MB, several times
VECTOR_WORK = 1e10  # steps times places times cubes of cells, of a search for their precisions: 15 seconds
MANY_TABLES = 50_000  # above this choosing weights would take minutes
LIGHT_WORK = 5e9  # operations that are not worth a tree of places: a quarter of a second
BLOCK_RANK = 2_600  # of a block that is no product; above, the best product of factors is taken instead
BRIEF_RANK = 600  # the same at quick effort
BRIEF_WORK = 2e7  # rank^2 * cells of a block from which a coarse gap must do at quick effort
BRIEF_PAIRS = 2e7  # rank^2 * cells of the tables of a pair that a bound looks at there
UNION_WORK = 9e10  # operations up to which all tables with joint families are solved as one block
JOINT_CLASSES = 1_024  # joint classes of cells that several attributes are taken for as one
JOINT_CELLS = 1_024  # of all attributes, for which one strategy is sought: a second or two
JOINT_GRAMS = 2 * 10**9  # entries of the grams of all tables that are added up for it
BASELINE_CELLS = 8_192  # of one attribute of a baseline: half a gigabyte
BASELINE_ENTRIES = 20_000_000  # of a query matrix that is measured as it is: 160 MB
MARGINAL_TERMS = 60_000  # marginals that are weighed
COVERING_TERMS = 2_000  # unions of tables of one size that are considered
EVERY_SUBSET = 14  # attributes up to which every subset may be measured: 2^14
DENSE_NUMBERS = 20_000_000  # up to which a full matrix is held: 160 MB
EXCHANGED_PAIRS = 20_000  # of terms whose exchange is tried
FILLED_WORK = 1e7  # rank^2 * cells of a filled block from which a coarse gap must do
HELD_WORK = 2e7  # rank^2 * cells of a piece on several attributes from which its shape is held
BOUND_CELLS = 2_000  # joint cells up to which the singular value bound takes seconds
SPLIT_CELLS = 700  # of a block of several products that is solved at every step
SPLIT_WORK = 4e8  # sum of cells^3 of all such blocks
FREE_ATTRIBUTES = 5  # up to this many, pieces may also sit on blocks of other tables
FREE_CELLS = 4_096  # of a block that free tables touch
FREE_SHARED = 4_000  # dimensions that several blocks see
STEP_WORK = 4e8  # rank^2 * cells of all distinct blocks that are solved at each step
HEAVY_STEP = 4e7  # the same in small schemas, where more steps are taken
FREE_RANK = 200  # of a product table that is split freely, in a small schema
PAIR_WORK = 2e10  # rank^2 * cells of the tables of a pair that are looked at
QUICK_PAIRS = 2e9  # the same where a bound may take a second or two
QUICK_SHARED = 700
PAIR_SHARED = 2_500  # dimensions of the total and all attributes, exchangeable ones counted once
FEW_CELLS = 500  # of a family on more than `BOUND_CELLS` that are bounded instead
FEW_ENTRIES = 500_000_000  # of its queries that are gone through for that: a few seconds
WIDE_WORK = 1e11  # operations for tables on three and more attributes
WIDE_WAYS = 8  # attributes of a table of which all subsets are gone through
WIDE_SUBSETS = 200_000  # of attributes of all tables that are bounded together: about a second
ALL_PAIRS_WORK = 4e10  # rank^2 * cells of all pairs, over all steps of the search

# Accuracy targets
CAPPED_KINDS = 64  # of queries of a table at one place that are told apart; more are taken for the worst
LISTED_TABLES = 1_000  # tables of one run that may each have a variance per query
TARGET_QUERIES = 8_192  # listed one by one
TARGET_ENTRIES = 2**23  # of the listed queries: 64 MB
TARGET_RANK = 1_100  # rows of a strategy that a minute or two suffice for
WEIGHED_CLASSES = 300  # classes of tables for whose weights blocks are solved again
REWEIGHED_QUERIES = 2_000_000  # whose variances are listed to choose weights
CENTRING_WORK = 1e8  # of one product with the Hessian; above, the search would take minutes
JOINT_ENTRIES = 2_000_000  # of the query matrix of one attribute: 16 MB
JOINT_WORK = 2e9  # multiplications of one product with the Hessian
EXCHANGED_SUBSETS = 30_000_000  # that exchanges are tried on; a run with more keeps its attributes apart
SYMMETRY_ENTRIES = 20_000_000  # of a query matrix whose root is looked through for being symmetric
PIECE_QUERIES = 20_000  # of one table
PIECE_CELLS = 4_000  # of one block
PIECE_ENTRIES = 40_000_000  # of all pieces: 320 MB
SEARCHED_QUERIES = 50_000_000  # of a table that are gone through for the largest variance
LOSS_NAMES = 2_000  # of a loss of one's own
LOSS_BLOCKS = 20_000  # classes of blocks, each a variable of the conic solver
MIXED_ENTRIES = 60_000_000  # of the matrices of plans that may be mixed: half a gigabyte
REPLACED_CELLS = 400  # joint cells up to which plans weigh all pairs of them: a few seconds
WHOLE_CELLS = 512  # of an attribute that is measured by one matrix beside the others

# Plans
LISTED_VARIANCES = 10_000_000  # in one array: 80 MB
SEARCHED_TABLES = 500  # whose largest variance is looked for when a plan is saved

# Streams
STREAM_CELLS = 50_000_000  # exact counts that are kept between instalments: 400 MB

# Post-processing
SIMULATED_CELLS = 400_000_000  # of all simulated tables together
SYNTHETIC_ROWS = 100_000_000  # that are drawn
JOINT_COVARIANCE = 3_000  # cells of a piece whose covariance is decomposed as a whole
STACKED_CELLS = 50_000_000  # of all tables together: 400 MB
TREE_CELLS = 100_000_000  # of one table of all places of a level: 800 MB, held a few times
SHARED_CELLS = 2_000_000  # of places that are shared out among their parts at a time
MODEL_MEGABYTES = 256.0  # of a model's tables; fitting takes several times as much
ROUNDED_CELLS = 4_000  # of a table for which whole numbers with all margins are looked for
