"""Fits the polynomials of simd::math: near-minimax, low coefficients rounded one by one and the rest refitted.

Run: python3 tests/core/math_fit.py [FAMILY.NAME ...] (mpmath 1.3; minutes for all). Prints each array with the worst
error left, in bits. exp coefficients include the leading 1/2, erf ones the two of ERF_HEAD, which the
source writes apart.
"""

import struct
import sys

from mpmath import cos, lu_solve, matrix, mp, mpf, pi

mp.prec = 400


def rnd(v, kind):
    """v rounded to the element type (f64 via Python, f32 via struct)."""
    d = float(v)
    if kind == "f32":
        d = struct.unpack("f", struct.pack("f", d))[0]
    return mpf(d)


def lawson(f, w, a, b, fixed, n, rounds=8):
    """Coefficients k..n (k = len(fixed)) of a polynomial near the one that minimises max |w (f - p)| on [a, b].

    Lawson's algorithm: weighted least squares on a Chebyshev grid, weights multiplied by the error that is left.
    """
    k, m = len(fixed), 14 * (n + 1)
    xs = [(a + b) / 2 - (b - a) / 2 * cos(pi * (2 * i + 1) / (2 * m)) for i in range(m)]
    ws = [w(x) for x in xs]
    ys = [f(x) - sum(v * x**i for i, v in enumerate(fixed)) for x in xs]
    rows = [[wx * x**j for j in range(k, n + 1)] for x, wx in zip(xs, ws)]
    size = n + 1 - k
    lam, best = [mpf(1)] * m, None
    for _ in range(rounds):
        A, y = matrix(size, size), matrix(size, 1)
        for i in range(size):
            for j in range(i, size):
                A[i, j] = A[j, i] = sum(l * r[i] * r[j] for l, r in zip(lam, rows))
            y[i] = sum(l * r[i] * wx * yx for l, r, wx, yx in zip(lam, rows, ws, ys))
        c = list(lu_solve(A, y))
        e = [abs(wx * yx - sum(v * t for v, t in zip(c, r))) for r, wx, yx in zip(rows, ws, ys)]
        worst = max(e)
        if best is None or worst < best[0]:
            best = (worst, c)
        lam = [l * (x / worst + mpf("1e-4")) for l, x in zip(lam, e)]
        top = max(lam)
        lam = [l / top for l in lam]
    return best[1]


def fit(name, f, w, a, b, n, kind="f64", fixed=(), step=5):
    """Fits: rounds the lowest coefficients one by one, and refits the rest."""
    a, b = mpf(a), mpf(b)
    c = [mpf(v) for v in fixed]
    while len(c) <= n:
        rest = lawson(f, w, a, b, c, n)
        if len(c) >= step:
            c += [rnd(v, kind) for v in rest]
        else:
            c.append(rnd(rest[0], kind))
    worst = mpf(0)
    for i in range(601):
        x = a + (b - a) * (mpf(i) + mpf("0.31")) / 602
        p = mpf(0)
        for k in reversed(c):
            p = p * x + k
        worst = max(worst, abs(w(x) * (f(x) - p)))
    print(f"/// {name}: degree {n} on [{float(a):.6}, {float(b):.6}], error 2^{float(mp.log(worst, 2)):.1f}")
    print(f"const {name}: [f64; {n + 1}] = [")
    for v in c:
        print(f"    {float(v)!r},")
    print("];", flush=True)


def series(term, x, tol=mpf(2) ** -230):
    """Sum of term(k) for k = 0, 1, ... until negligible."""
    s, k = mpf(0), 0
    while True:
        t = term(k)
        s += t
        if k > 3 and abs(t) < tol * (abs(s) + tol):
            return s
        k += 1


def exp_q(r):
    if r == 0:
        return mpf(1) / 2
    return (mp.expm1(r) - r) / r**2


def log_r(z):
    """(2 atanh s - 2 s) / (s z), z = s^2"""
    return series(lambda k: 2 * z**k / (2 * k + 3), z)


def log_p(f):
    if f == 0:
        return mpf(1) / 3
    return (mp.log1p(f) - f + f * f / 2) / f**3


def sin_q(z):
    return series(lambda k: (-1) ** (k + 1) * z**k / mp.factorial(2 * k + 3), z)


def cos_q(z):
    return series(lambda k: (-1) ** k * z**k / mp.factorial(2 * k + 4), z)


def atan_q(z):
    return series(lambda k: (-1) ** (k + 1) * z**k / (2 * k + 3), z)


def erf_q(z):
    """erf(x)/x - 1"""
    return 2 / mp.sqrt(mp.pi) * series(lambda k: (-1) ** k * z**k / mp.factorial(k) / (2 * k + 1), z) - 1


def log_tail(z):
    """sum 2 z^k / (2k+7): the terms after 2s + 2/3 s z + 2/5 s z^2, over s z^3"""
    return series(lambda k: 2 * z**k / (2 * k + 7), z)


L = mp.log(2) / 2 * mpf("1.0005")
Z = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.0005")
P4 = (mp.pi / 4 * mpf("1.0005")) ** 2
T8 = ((mp.sqrt(2) - 1) * mpf("1.001")) ** 2


def gauss_density(x):
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def mills(x):
    """Phi(-x) / phi(x), by a continued fraction if erfc would need more precision."""
    if x > 12:
        f = mpf(0)
        for k in range(300, 0, -1):
            f = mpf(k) / (x + f)
        return 1 / (x + f)
    return mp.erfc(x / mp.sqrt(2)) / 2 / gauss_density(x)


def from_t(t, k):
    return k * (1 + t) / (1 - t)


def to_t(x, k):
    return (mpf(x) - k) / (mpf(x) + k)


PEAK = 1 / mp.sqrt(2 * mp.pi)
ROOT = mp.findroot(lambda x: mills(x) - x, mpf(".75"))


def normal_slope(z):
    """(Phi(x) - 1/2) / x, z = x^2"""
    return PEAK * series(lambda k: (-z / 2) ** k / mp.factorial(k) / (2 * k + 1), z)


def gelu_slope_centre(z):
    """(Phi(x) + x phi(x) - 1/2) / x, z = x^2"""
    return normal_slope(z) + PEAK * mp.exp(-z / 2)


def normal_tail(t, k):
    x = from_t(t, k)
    return (1 + mpf("1.5") * x) * mills(x) * PEAK


def gelu_slope(t, k):
    x = from_t(t, k)
    if abs(x - ROOT) < mpf(2) ** -100:
        x += mpf(2) ** -90
    return (mills(x) - x) * PEAK / (ROOT - x)


def erfc_factor(t):
    x = from_t(t, 2)
    return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)


def erfc_weight(t):
    x = from_t(t, 2)
    return mp.exp(-x * x) / (1 + 2 * x)


def plain(_):
    return mpf(1)


def over_least(_):
    """Relative to approximately the smallest factor of the normal tail."""
    return 1 / mpf(".6")


ROOT_HALF, ROOT_TWO = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
# name: function, weight of its error, interval, degree, then options of fit
JOBS = {
    "exp.TAIL": (exp_q, abs, -L, L, 10, {"fixed": [0.5]}),
    "exp.TAIL_F32": (exp_q, abs, -L, L, 5, {"kind": "f32", "fixed": [0.5]}),
    "exp.TAIL_SHORT": (exp_q, abs, -L, L, 6, {"fixed": [0.5]}),
    "log.ATANH": (log_r, lambda z: z / 2, 0, Z, 6, {}),
    "log.TAIL_F32": (log_p, lambda x: x * x, ROOT_HALF, ROOT_TWO, 8, {"kind": "f32"}),
    "pow.ATANH_SHORT": (log_r, lambda z: z / 2, 0, Z, 4, {}),
    "pow.LOG_REST": (log_tail, lambda z: z**3 / 2, 0, Z, 6, {}),
    "trig.SIN": (sin_q, lambda z: z, 0, P4, 5, {}),
    "trig.COS": (cos_q, lambda z: z * z, 0, P4, 5, {}),
    "trig.SIN_SHORT": (sin_q, lambda z: z, 0, P4, 3, {}),
    "trig.COS_SHORT": (cos_q, lambda z: z * z, 0, P4, 3, {}),
    "atan.ATAN": (atan_q, lambda z: z, 0, T8, 11, {}),
    "atan.ATAN_SHORT": (atan_q, lambda z: z, 0, T8, 6, {}),
    "erf.ERF": (erf_q, plain, 0, 1, 11, {}),
    "erf.ERF_SHORT": (erf_q, plain, 0, 1, 7, {}),
    "erf.ERFC": (erfc_factor, erfc_weight, to_t(".8", 2), to_t(6, 2), 13, {"step": 2}),
    "erf.ERFC_SHORT": (erfc_factor, erfc_weight, to_t(".8", 2), to_t(6, 2), 7, {"step": 2}),
    "erf.CENTRE": (normal_slope, plain, 0, mpf(".77") ** 2, 8, {}),
    "erf.GRAD_CENTRE": (gelu_slope_centre, plain, 0, mpf(".4") ** 2, 7, {}),
    "erf.TAIL": (lambda t: normal_tail(t, 5), over_least, -1, to_t(39, 5), 24, {"step": 2}),
    "erf.TAIL_SHORT": (lambda t: normal_tail(t, 4), over_least, -1, to_t(39, 4), 12, {"step": 2}),
    "erf.GRAD": (lambda t: gelu_slope(t, 5), over_least, -1, to_t(40, 5), 24, {"step": 2}),
    "erf.GRAD_SHORT": (lambda t: gelu_slope(t, 5), over_least, -1, to_t(40, 5), 12, {"step": 2}),
}
if __name__ == "__main__":
    for job in sys.argv[1:] or JOBS:
        *what, options = JOBS[job]
        fit(job, *what, **options)
