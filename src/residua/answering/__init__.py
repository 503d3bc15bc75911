"""How the figures and estimates of a strategy are computed: one protocol, and one way for each structure.

A strategy is a set of blocks. Each block measures `kron(matrices)` of the marginal on its attributes with
independent noise, and every answer is the best linear unbiased one from all of them: with
`X = sum_B E_B' M_B' M_B E_B / noise_B`, a query q has the variance `q X^- q'`. What differs between
structures is only how that is computed:

| structure | answerer | claim |
|---|---|---|
| one block | `kronecker`: the inverse of a product is a product of inverses | A-002 |
| centred blocks on different attributes | `independent`: variances of pieces add up | A-004 |
| one matrix per attribute on many marginals | `nested`: equivalent to centred blocks | H-020 |
| products over the same axes with a common diagonal form | `diagonal` | H-030 |
| anything else | `coupled`: private coordinates eliminated, shared ones solved | O-001 to O-004 |
| blocks that see classes of cells | `coarsened`: queries split, parts answered as above | H-041 |
| blocks within places, at several levels | `places`: one pass up the tree and one down | T-007 |
| the same by rows that differ by level | `vector_places`: with a matrix at every place | T-010 |

| symbol | meaning |
|---|---|
| M, B | a measured matrix, (rows, cells) |
| E_B | sums a table of all cells out to the attributes of block B |
| p, C | weights on the cells of an attribute that sum to 1 (a `Measure`), and centring `I - p 1'` |
| residual | what is centred along a set of attributes and summed over all others |
"""
