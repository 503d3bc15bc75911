"""What privacy rests on, to be read in one sitting: what is measured, and what that costs a record.

`measurement` is what is measured, checked when it is made; `block` and `cost` are the privacy cost of adding,
removing or replacing a record, from the integers and their noise alone; `measuring` spends it.
Nothing here knows how a plan was found or how its answers are computed.

| word | meaning |
|---|---|
| cell | a combination of values of attributes; a record is in one |
| block | `multiplier * kron(matrices)` of one marginal, each number with noise of its own |
| parameter | of a block's noise: variance of a Gaussian before it is rounded, or scale of Laplace noise |
| cost of a cell | squared length of its column over the variance, or sum of the sizes over the scale |
| cost of a pair | the same of the difference of two columns: a record of one cell becomes one of the other |
| derived | an attribute made of others: its values are classes of their cells |

Claims: docs/math/kernel.md.
"""
