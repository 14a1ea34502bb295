"""Expected values and partials of every op at its edges and at random points, from mpmath at 200 bits.

Read in this order: `quantity` (what a record holds), `unary`, `binary`, `reductions` (one row per op), `points`
(where they are taken).
"""
