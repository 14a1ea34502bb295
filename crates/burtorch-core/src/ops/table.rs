//! THE op table: one row per op. A row defines everything about its op; the enum, the sweep, the Python methods, the table in
//! the docs and the tests are generated from here. To add an op, add a row.
//!
//! Grammar of a row: a doc line with the formula, the type name, the name in Rust and Python, the paper's name, then
//! the value, the contribution of the output's adjoint `g` to each operand, whether it reads the output, the interval
//! from which tests may sample, and the largest error of value and partials in ULP (`of 0.5`: a result below 1/2 may have the
//! absolute error of 1/2). Formulas are written over any `S: RowMath`. Further properties of the op follow, if it has them:
//! `constant name = x` (the keyword and the default of its constant), `folds R` (the reduction that takes one sequence
//! instead), `like B` (the op of two values that it is with a constant), `method name` (of vectors), and
//! - `is commutative`: exchanging the operands changes no bit;
//! - `is linear`: second derivatives are 0;
//! - `is through`: every operand receives the adjoint unchanged;
//! - `is quick`: a few arithmetic instructions;
//! - `is keeps`: the partial is expensive and multiplies the adjoint, so that programs store it beside the value;
//! - `is rare`: its code is kept small, with one copy where other ops have one for each CPU level, at the cost of a few
//!   instructions per node;
//! - `is masks`: a partial is 0 where an operand is not chosen, and nothing moves there, however large a later partial is;
//! - `as ROLE`: rewriting passes and operators know the op by this name, a constant of [`Op`](super::Op).
//!
//! Kinks take the minimum-norm subgradient; masked partials select and never multiply, so that an infinite adjoint
//! cannot become a NaN on the masked side.

/// Hands every row of the op table to the macro `$consume`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_op {
    ($consume:ident) => {
        $consume! {
            nullary {
                #[doc = "a number that the caller gives; its gradient accumulates over sweeps"]
                Leaf leaf "leaf"
                #[doc = "a number that receives no gradient"]
                Constant constant ""
                #[doc = "a trainable number of a `Parameters`; its gradient accumulates there"]
                Param parameter ""
                #[doc = "a frozen number of a `Parameters`"]
                FrozenParam frozen_parameter ""
                #[doc = "an output of a block op other than the last"]
                Part part ""
                #[doc = "a node of the frozen graph that a branch reads"]
                Imported imported ""
            }
            unary {
                #[doc = "max(x, 0); dx = 1 if x > 0 else 0"]
                Relu relu "relu" {
                    y = |x| S::select(S::lit(0.0).less(x), x, S::select(x.nan_mask(), x, S::lit(0.0)));
                    dx = |g, x, y| S::select(S::lit(0.0).less(x), g, S::select(x.nan_mask(), x, S::lit(0.0)));
                    reads inputs; on -4.0, 4.0; ulp 0.5, 0.5; is quick masks;
                }
                #[doc = "tanh(x); dx = 1 - tanh(x)^2"]
                Tanh tanh "tanh" {
                    y = |x| x.tanh(); dx = |g, x, y| g * x.tanh_grad(y);
                    reads output; on -20.0, 20.0; ulp 3.0, 6.0; is keeps;
                }
                #[doc = "exp(x); dx = exp(x)"]
                Exp exp "exp" {
                    y = |x| x.exp(); dx = |g, x, y| g * y;
                    reads output; on -30.0, 30.0; ulp 1.0, 2.0; as EXPONENTIAL;
                }
                #[doc = "-log(x); dx = -1/x"]
                NegLog neg_log "negativeLog" {
                    y = |x| -x.log();
                    dx = |g, x, y| g * S::select(x.less(S::lit(0.0)), S::lit(f64::NAN), S::lit(-1.0) / x);
                    reads inputs; on 0.001, 50.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "1/(1 + exp(-x)); dx = e/(1 + e)^2 with e = exp(-|x|)"]
                Sigmoid sigmoid "sigmoid" {
                    y = |x| x.sigmoid(); dx = |g, x, y| g * x.sigmoid_grad();
                    reads inputs; on -30.0, 30.0; ulp 3.0, 4.0; is keeps;
                }
                #[doc = "1/x; dx = -1/x^2"]
                Inv inv "inv" {
                    y = |x| S::lit(1.0) / x; dx = |g, x, y| g * -(y * y);
                    reads output; on 0.1, 10.0; ulp 0.5, 2.0;
                }
                #[doc = "x^2; dx = 2x"]
                Sqr sqr "sqr" {
                    y = |x| x * x; dx = |g, x, y| g * (x + x);
                    reads inputs; on -10.0, 10.0; ulp 0.5, 2.0; is quick; as SQUARE;
                }
                #[doc = "x^3; dx = 3x^2"]
                Pow3 pow3 "pow3" {
                    y = |x| x * x * x; dx = |g, x, y| g * (S::lit(3.0) * (x * x));
                    reads inputs; on -10.0, 10.0; ulp 1.5, 2.0; is quick; as CUBE;
                }
                #[doc = "log(x), natural; dx = 1/x"]
                Log log "logarithm" {
                    y = |x| x.log();
                    dx = |g, x, y| g * S::select(x.less(S::lit(0.0)), S::lit(f64::NAN), S::lit(1.0) / x);
                    reads inputs; on 0.001, 50.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "sqrt(x); dx = 1/(2 sqrt(x))"]
                Sqrt sqrt "sqrt" {
                    y = |x| x.sqrt(); dx = |g, x, y| g * (S::lit(0.5) / y);
                    reads output; on 0.001, 50.0; ulp 0.5, 2.0; is keeps;
                }
                #[doc = "1/sqrt(x); dx = -1/(2 x sqrt(x))"]
                InvSqrt inv_sqrt "invSqrt" {
                    y = |x| S::lit(1.0) / x.sqrt(); dx = |g, x, y| g * (S::lit(-0.5) * y / x);
                    reads output; on 0.001, 50.0; ulp 2.0, 2.0; is keeps;
                }
                #[doc = "-x; dx = -1"]
                Neg neg "" {
                    y = |x| -x; dx = |g, x, y| -g;
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is quick linear; as NEGATIVE;
                }
                #[doc = "|x|; dx = sign(x), 0 at 0"]
                Abs abs "" {
                    y = |x| x.abs();
                    dx = |g, x, y| S::select(S::lit(0.0).less(x), g,
                        S::select(x.less(S::lit(0.0)), -g, S::select(x.nan_mask(), x, S::lit(0.0))));
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is quick masks; as MAGNITUDE;
                }
                #[doc = "sin(x); dx = cos(x)"]
                Sin sin "" {
                    y = |x| x.sin(); dx = |g, x, y| g * x.cos();
                    reads inputs; on -10.0, 10.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "cos(x); dx = -sin(x)"]
                Cos cos "" {
                    y = |x| x.cos(); dx = |g, x, y| g * -x.sin();
                    reads inputs; on -10.0, 10.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "tan(x); dx = 1 + tan(x)^2"]
                Tan tan "" {
                    y = |x| x.tan(); dx = |g, x, y| g * x.tan_grad();
                    reads inputs; on -1.5, 1.5; ulp 2.0, 2.0; is keeps;
                }
                #[doc = "log(1 + x); dx = 1/(1 + x)"]
                Log1p log1p "" {
                    y = |x| x.log1p();
                    dx = |g, x, y| g * S::select(x.less(S::lit(-1.0)), S::lit(f64::NAN), S::lit(1.0) / (S::lit(1.0) + x));
                    reads inputs; on -0.9, 50.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "exp(x) - 1; dx = exp(x)"]
                Expm1 expm1 "" {
                    y = |x| x.expm1(); dx = |g, x, y| g * x.exp();
                    reads inputs; on -20.0, 20.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "log(1 + exp(x)); dx = sigmoid(x)"]
                Softplus softplus "" {
                    y = |x| x.softplus(); dx = |g, x, y| g * x.sigmoid();
                    reads inputs; on -30.0, 30.0; ulp 2.0, 2.0; is keeps;
                }
                #[doc = "the error function; dx = 2/sqrt(pi) exp(-x^2)"]
                Erf erf "" {
                    y = |x| x.erf(); dx = |g, x, y| g * x.erf_grad();
                    reads inputs; on -5.0, 5.0; ulp 1.0, 2.0; is keeps;
                }
                #[doc = "x P(x) with P the normal distribution; dx = P(x) + x p(x) with p its density"]
                Gelu gelu "" {
                    y = |x| x.gelu(); dx = |g, x, y| g * x.gelu_grad();
                    reads inputs; on -10.0, 10.0; ulp 4.0, 2.0; is keeps;
                }
                #[doc = "the angle whose sine is x; dx = 1/sqrt(1 - x^2)"]
                Asin asin "" {
                    y = |x| x.asin(); dx = |g, x, y| g / below_one(x).sqrt();
                    reads inputs; on -0.99, 0.99; ulp 2.0, 2.0; is rare;
                }
                #[doc = "the angle whose cosine is x; dx = -1/sqrt(1 - x^2)"]
                Acos acos "" {
                    y = |x| x.acos(); dx = |g, x, y| -g / below_one(x).sqrt();
                    reads inputs; on -0.99, 0.99; ulp 2.0, 2.0; is rare;
                }
                #[doc = "the angle whose tangent is x; dx = 1/(1 + x^2)"]
                Atan atan "" {
                    y = |x| x.atan(); dx = |g, x, y| g * S::lit(1.0).over_squares(x);
                    reads inputs; on -10.0, 10.0; ulp 2.0, 2.0; is keeps rare;
                }
                #[doc = "(exp(x) - exp(-x))/2; dx = cosh(x)"]
                Sinh sinh "" {
                    y = |x| x.sinh(); dx = |g, x, y| g * x.cosh();
                    reads inputs; on -20.0, 20.0; ulp 2.0, 2.0; is keeps rare;
                }
                #[doc = "(exp(x) + exp(-x))/2; dx = sinh(x)"]
                Cosh cosh "" {
                    y = |x| x.cosh(); dx = |g, x, y| g * x.sinh();
                    reads inputs; on -20.0, 20.0; ulp 2.0, 2.0; is keeps rare;
                }
                #[doc = "the number whose sinh is x; dx = 1/sqrt(x^2 + 1)"]
                Asinh asinh "" {
                    y = |x| x.asinh(); dx = |g, x, y| g / x.hypot(S::lit(1.0));
                    reads inputs; on -50.0, 50.0; ulp 2.0, 2.0; is rare;
                }
                #[doc = "the number not below 0 whose cosh is x; dx = 1/sqrt(x^2 - 1)"]
                Acosh acosh "" {
                    y = |x| x.acosh(); dx = |g, x, y| g / acosh_run(x);
                    reads inputs; on 1.01, 50.0; ulp 2.0, 2.0; is rare;
                }
                #[doc = "the number whose tanh is x; dx = 1/(1 - x^2)"]
                Atanh atanh "" {
                    y = |x| x.atanh();
                    dx = |g, x, y| S::select(S::lit(1.0).less(x.abs()), S::lit(f64::NAN),
                        g / below_one(x));
                    reads inputs; on -0.99, 0.99; ulp 2.0, 2.0; is rare;
                }
                #[doc = "log(x)/log(2); dx = 1/(x log(2))"]
                Log2 log2 "" {
                    y = |x| x.log2();
                    dx = |g, x, y| g * S::select(x.less(S::lit(0.0)), S::lit(f64::NAN), log2_e::<S>() / x);
                    reads inputs; on 0.001, 50.0; ulp 1.0, 2.0; is keeps rare;
                }
                #[doc = "log(x)/log(10); dx = 1/(x log(10))"]
                Log10 log10 "" {
                    y = |x| x.log10();
                    dx = |g, x, y| g * S::select(x.less(S::lit(0.0)), S::lit(f64::NAN), log10_e::<S>() / x);
                    reads inputs; on 0.001, 50.0; ulp 1.0, 2.0; is keeps rare;
                }
                #[doc = "2^x; dx = 2^x log(2)"]
                Exp2 exp2 "" {
                    y = |x| x.exp2(); dx = |g, x, y| g * (y * ln_2());
                    reads output; on -30.0, 30.0; ulp 1.0, 2.0; is rare;
                }
                #[doc = "10^x; dx = 10^x log(10)"]
                Exp10 exp10 "" {
                    y = |x| x.exp10(); dx = |g, x, y| g * (y * ln_10());
                    reads output; on -10.0, 10.0; ulp 1.0, 2.0; is rare;
                }
                #[doc = "the cube root, of negative numbers too; dx = cbrt(x)/(3x), infinite at 0"]
                Cbrt cbrt "" {
                    y = |x| x.cbrt(); dx = |g, x, y| g * cbrt_slope(x, y);
                    reads output; on 0.1, 50.0; ulp 1.0, 2.0; is keeps rare;
                }
                #[doc = "1 - erf(x), accurate where it is small; dx = -2/sqrt(pi) exp(-x^2)"]
                Erfc erfc "" {
                    y = |x| x.erfc(); dx = |g, x, y| g * -x.erf_grad();
                    reads inputs; on -5.0, 10.0; ulp 3.0, 2.0; is keeps rare;
                }
                #[doc = "the normal distribution, accurate where it is small; dx = exp(-x^2/2)/sqrt(2 pi)"]
                Ndtr ndtr "" {
                    y = |x| x.ndtr(); dx = |g, x, y| g * x.normal_pdf();
                    reads inputs; on -10.0, 5.0; ulp 3.0, 2.0; is keeps rare;
                }
                #[doc = "log |gamma(x)|; dx = digamma(x)"]
                Lgamma lgamma "" {
                    y = |x| x.lgamma(); dx = |g, x, y| g * x.digamma();
                    reads inputs; on 0.1, 20.0; ulp 4.0, 4.0 of 0.5; is keeps rare;
                }
                #[doc = "the derivative of lgamma; dx = the sum of 1/(x + k)^2 over k = 0, 1, ..."]
                Digamma digamma "" {
                    y = |x| x.digamma(); dx = |g, x, y| g * x.polygamma(S::lit(1.0));
                    reads inputs; on 0.1, 20.0; ulp 4.0, 5.0 of 0.5; is keeps rare;
                }
                #[doc = "x/(1 + exp(-x)), also called swish; dx = s + x s (1 - s) with s = 1/(1 + exp(-x))"]
                Silu silu "" {
                    y = |x| S::select(x.equal(S::lit(f64::NEG_INFINITY)), S::lit(-0.0), x * x.sigmoid());
                    dx = |g, x, y| g * silu_slope(x);
                    reads inputs; on -10.0, 10.0; ulp 3.0, 4.0 of 0.5; is keeps rare;
                }
                #[doc = "x/(1 + |x|); dx = 1/(1 + |x|)^2"]
                Softsign softsign "" {
                    y = |x| S::select(x.abs().equal(S::lit(f64::INFINITY)), sign_of(x), x / (S::lit(1.0) + x.abs()));
                    dx = |g, x, y| g / (S::lit(1.0) + x.abs()) / (S::lit(1.0) + x.abs());
                    reads inputs; on -10.0, 10.0; ulp 1.5, 3.0; is rare;
                }
                #[doc = "s x if x > 0, else s a (exp(x) - 1), with s = 1.0507... and a = 1.6732...; dx = s if x > 0, else s a exp(x), s at 0"]
                Selu selu "" {
                    y = |x| S::select(S::lit(0.0).less(x), selu_scale::<S>() * x, selu_depth::<S>() * x.expm1());
                    dx = |g, x, y| S::select(x.less(S::lit(0.0)), g * (selu_depth::<S>() * x.exp()),
                        S::select(x.nan_mask(), x, g * selu_scale()));
                    reads inputs; on -10.0, 10.0; ulp 2.0, 2.0; is rare;
                }
                #[doc = "-1, 0 or 1; dx = 0"]
                Sign sign "" {
                    y = |x| sign_of(x); dx = |g, x, y| S::select(x.nan_mask(), x, S::lit(0.0));
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is quick rare masks;
                }
                #[doc = "the nearest integer, the even one of two; dx = 0"]
                Round round "" {
                    y = |x| nearest(x); dx = |g, x, y| S::select(x.nan_mask(), x, S::lit(0.0));
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is rare masks;
                }
                #[doc = "the largest integer not above x; dx = 0"]
                Floor floor "" {
                    y = |x| x.floor(); dx = |g, x, y| S::select(x.nan_mask(), x, S::lit(0.0));
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is quick rare masks;
                }
                #[doc = "the smallest integer not below x; dx = 0"]
                Ceil ceil "" {
                    y = |x| x.ceil(); dx = |g, x, y| S::select(x.nan_mask(), x, S::lit(0.0));
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is quick rare masks;
                }
            }
            binary {
                #[doc = "x + y; dx = 1, dy = 1"]
                Add add "add" {
                    z = |x, y| x + y; dx = |g, x, y, z| g; dy = |g, x, y, z| g;
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is commutative linear through quick; as SUM;
                }
                #[doc = "x - y; dx = 1, dy = -1"]
                Sub sub "sub" {
                    z = |x, y| x - y; dx = |g, x, y, z| g; dy = |g, x, y, z| -g;
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is linear quick; as DIFFERENCE;
                }
                #[doc = "x y; dx = y, dy = x"]
                Mul mul "mul" {
                    z = |x, y| x * y; dx = |g, x, y, z| g * y; dy = |g, x, y, z| g * x;
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; is commutative quick; as PRODUCT;
                }
                #[doc = "x/y; dx = 1/y, dy = -(x/y)/y"]
                Div div "div" {
                    z = |x, y| x / y; dx = |g, x, y, z| g / y; dy = |g, x, y, z| g * (-z / y);
                    reads output; on 0.1, 10.0; ulp 0.5, 2.0; as QUOTIENT;
                }
                #[doc = "(x + y)/2; dx = dy = 1/2"]
                Mean mean "mean" {
                    z = |x, y| half_sum(x, y); dx = |g, x, y, z| S::lit(0.5) * g; dy = |g, x, y, z| S::lit(0.5) * g;
                    reads inputs; on -10.0, 10.0; ulp 1.0, 0.5; folds ReduceMean; is commutative linear quick;
                }
                #[doc = "x^2 + y^2; dx = 2x, dy = 2y"]
                AddSquares add_squares "addSquares" {
                    z = |x, y| x * x + y * y; dx = |g, x, y, z| g * (x + x); dy = |g, x, y, z| g * (y + y);
                    reads inputs; on -10.0, 10.0; ulp 1.5, 2.0; is commutative quick;
                }
                #[doc = "(x^2 + y^2)/2; dx = x, dy = y"]
                MeanSquares mean_squares "meanSquares" {
                    z = |x, y| half_sum_of_squares(x, y); dx = |g, x, y, z| g * x; dy = |g, x, y, z| g * y;
                    reads inputs; on -10.0, 10.0; ulp 1.5, 2.0; is commutative quick;
                }
                #[doc = "-(x + y)/2; dx = dy = -1/2"]
                NegativeMean negative_mean "negativeMean" {
                    z = |x, y| -half_sum(x, y); dx = |g, x, y, z| S::lit(-0.5) * g; dy = |g, x, y, z| S::lit(-0.5) * g;
                    reads inputs; on -10.0, 10.0; ulp 1.0, 0.5; folds ReduceNegativeMean; is commutative linear quick;
                }
                #[doc = "x^y; dx = y x^(y-1), dy = x^y log(x)"]
                Pow pow "" {
                    z = |x, y| x.pow(y);
                    dx = |g, x, y, z| g * x.pow_dx(y);
                    dy = |g, x, y, z| g * x.pow_dy(y);
                    reads inputs; on 0.1, 5.0; ulp 1.0, 2.0; as POWER;
                }
                #[doc = "atan2(x, y), the angle of the point (y, x); dx = y/(x^2 + y^2), dy = -x/(x^2 + y^2)"]
                Atan2 atan2 "" {
                    z = |x, y| x.atan2(y);
                    dx = |g, x, y, z| g * y.over_squares(x);
                    dy = |g, x, y, z| g * -x.over_squares(y);
                    reads inputs; on 0.1, 10.0; ulp 2.0, 2.0;
                }
                #[doc = "the larger; dx = 1 if x > y, 1/2 if equal, else 0"]
                Max max "" {
                    z = |x, y| S::select(y.less(x), x, S::select(x.less(y), y, tie(x, y)));
                    dx = |g, x, y, z| larger_share(g, x, y);
                    dy = |g, x, y, z| larger_share(g, y, x);
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; folds ReduceMax; is commutative quick masks;
                }
                #[doc = "the smaller; dx = 1 if x < y, 1/2 if equal, else 0"]
                Min min "" {
                    z = |x, y| S::select(x.less(y), x, S::select(y.less(x), y, -tie(-x, -y)));
                    dx = |g, x, y, z| larger_share(g, y, x);
                    dy = |g, x, y, z| larger_share(g, x, y);
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; folds ReduceMin; is commutative quick masks;
                }
                #[doc = "sqrt(x^2 + y^2), without overflow or underflow inside; dx = x/z, dy = y/z, 0 at the origin"]
                Hypot hypot "" {
                    z = |x, y| x.hypot(y);
                    dx = |g, x, y, z| g * hypot_share(x, y, z);
                    dy = |g, x, y, z| g * hypot_share(y, x, z);
                    reads output; on -10.0, 10.0; ulp 1.0, 2.0; is commutative rare;
                }
                #[doc = "log(exp(x) + exp(y)); dx = 1/(1 + exp(y - x)), dy = 1/(1 + exp(x - y))"]
                Logaddexp logaddexp "" {
                    z = |x, y| log_add_exp(x, y);
                    dx = |g, x, y, z| g * logistic_of_difference(x, y);
                    dy = |g, x, y, z| g * logistic_of_difference(y, x);
                    reads inputs; on -10.0, 10.0; ulp 2.0, 4.0 of 0.5; is commutative rare;
                }
                #[doc = "x log(y), 0 where x is 0; dx = log(y), dy = x/y"]
                Xlogy xlogy "" {
                    z = |x, y| S::select(x.equal(S::lit(0.0)), S::select(y.nan_mask(), y, S::lit(0.0)), x * y.log());
                    dx = |g, x, y, z| S::select(x.equal(S::lit(0.0)),
                        S::select(y.less_equal(S::lit(0.0)), S::lit(0.0), g * y.log()), S::select(x.nan_mask(), x, g * y.log()));
                    dy = |g, x, y, z| g * xlogy_slope(x, y);
                    reads inputs; on 0.1, 10.0; ulp 2.0, 2.0; is rare;
                }
                #[doc = "the largest integer not above x/y, `x // y` in Python; dx = dy = 0"]
                FloorDivide floor_divide "" {
                    z = |x, y| x.floor_divide(y);
                    dx = |g, x, y, z| S::select(z.nan_mask(), z, S::lit(0.0));
                    dy = |g, x, y, z| S::select(z.nan_mask(), z, S::lit(0.0));
                    reads output; on 0.1, 10.0; ulp 1.0, 0.5; is rare masks; as FLOOR_QUOTIENT;
                }
                #[doc = "x - y floor(x/y), `x % y` in Python, with the sign of y; dx = 1, dy = -floor(x/y)"]
                Remainder remainder "" {
                    z = |x, y| x.remainder(y);
                    dx = |g, x, y, z| S::select(z.nan_mask(), z, g);
                    dy = |g, x, y, z| S::select(z.nan_mask(), z, g * -x.floor_divide(y));
                    reads output; on 0.1, 10.0; ulp 0.5, 2.0; is rare masks; as REMAINDER;
                }
            }
            with_constant {
                #[doc = "x c with a constant c; dx = c"]
                MulByConstant mul_by_constant "mulByConstant" {
                    z = |x, c| x * c; dx = |g, x, c, z| g * c;
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; like Mul; is linear quick; as SCALED;
                }
                #[doc = "x/c with a constant c; dx = 1/c"]
                DivByConstant div_by_constant "" {
                    z = |x, c| x / c; dx = |g, x, c, z| g / c;
                    reads inputs; on 0.1, 10.0; ulp 0.5, 0.5; like Div; is linear;
                }
                #[doc = "x + c with a constant c; dx = 1"]
                AddConstant add_constant "" {
                    z = |x, c| x + c; dx = |g, x, c, z| g;
                    reads inputs; on -10.0, 10.0; ulp 0.5, 0.5; like Add; is linear through quick;
                }
                #[doc = "x^c with a constant c; dx = c x^(c-1)"]
                PowConstant pow_constant "" {
                    z = |x, c| x.pow(c); dx = |g, x, c, z| g * x.pow_dx(c);
                    reads inputs; on 0.1, 5.0; ulp 1.0, 2.0; like Pow;
                }
                #[doc = "x if x > 0, else c x, with a constant c; dx = 1 if x > 0, else c, the smaller of both at 0"]
                LeakyRelu leaky_relu "" {
                    z = |x, c| S::select(S::lit(0.0).less(x), x, c * x);
                    dx = |g, x, c, z| kinked(g, x, c, c);
                    reads inputs; on -4.0, 4.0; ulp 0.5, 0.5; constant negative_slope = 0.01; is quick rare;
                }
                #[doc = "x if x > 0, else c (exp(x) - 1), with a constant c; dx = 1 if x > 0, else c exp(x), the smaller of both at 0"]
                Elu elu "" {
                    z = |x, c| S::select(S::lit(0.0).less(x), x, c * x.expm1());
                    dx = |g, x, c, z| kinked(g, x, c, scaled_exp(c, x));
                    reads inputs; on -4.0, 4.0; ulp 2.0, 3.0; constant alpha = 1.0; is rare;
                }
            }
            reduction {
                #[doc = "sum of x_i; dx_i = 1"]
                ReduceSum reduce_sum "reduceSum" { reads inputs; on -10.0, 10.0; method sum; is linear through quick; as TOTAL; }
                #[doc = "x_0 minus all the others; dx_0 = 1, dx_i = -1"]
                ReduceSub reduce_sub "reduceSub" { reads inputs; on -10.0, 10.0; is linear quick; }
                #[doc = "product of x_i; dx_i = product of the others, by prefix and suffix products"]
                ReduceMul reduce_mul "reduceMul" { reads inputs; on -2.0, 2.0; method prod; is quick; as TOTAL_PRODUCT; }
                #[doc = "mean of x_i; dx_i = 1/n"]
                ReduceMean reduce_mean "reduceMean" { reads inputs; on -10.0, 10.0; method mean; is linear quick; as AVERAGE; }
                #[doc = "sum of x_i^2; dx_i = 2 x_i"]
                ReduceSumOfSquares reduce_sum_of_squares "reduceSumOfSquares" { reads inputs; on -10.0, 10.0; }
                #[doc = "mean of x_i^2; dx_i = 2 x_i / n"]
                ReduceMeanSquares reduce_mean_squares "reduceMeanSquares" { reads inputs; on -10.0, 10.0; as MEAN_SQUARE; }
                #[doc = "minus the mean of x_i; dx_i = -1/n"]
                ReduceNegativeMean reduce_negative_mean "reduceNegativeMean" { reads inputs; on -10.0, 10.0; is linear; }
                #[doc = "sum of (x_i - m)^2 / n with m the mean, in two passes; dx_i = 2 (x_i - m)/n"]
                VarianceBiased variance_biased "varianceBiased" { reads inputs; on -10.0, 10.0; }
                #[doc = "sum of (x_i - m)^2 / (n-1) with m the mean, in two passes; dx_i = 2 (x_i - m)/(n-1)"]
                Variance variance "variance" { reads inputs; on -10.0, 10.0; }
                #[doc = "the largest x_i; dx_i = 1/k for the k that equal it, else 0"]
                ReduceMax reduce_max "" { reads inputs; on -10.0, 10.0; method max; }
                #[doc = "the smallest x_i; dx_i = 1/k for the k that equal it, else 0"]
                ReduceMin reduce_min "" { reads inputs; on -10.0, 10.0; method min; }
                #[doc = "log of the sum of exp(x_i), shifted by the largest; dx_i = softmax(x)_i"]
                LogSumExp logsumexp "" { reads inputs; on -10.0, 10.0; method logsumexp; }
                #[doc = "sqrt of the sum of x_i^2, without overflow or underflow inside; dx_i = x_i/|x|, 0 at the origin"]
                Norm2 norm2 "" { reads inputs; on -10.0, 10.0; method norm2; }
            }
            inner_product {
                #[doc = "sum of x_i w_i; dx_i = w_i, dw_i = x_i"]
                InnerProduct inner_product "innerProduct" { on -10.0, 10.0; }
                #[doc = "sum of x_i w_i, plus b; dx_i = w_i, dw_i = x_i, db = 1"]
                InnerProductWithBias inner_product_with_bias "innerProductWithBias" { on -10.0, 10.0; }
                #[doc = "a number that a primitive computed, with its partials p_i; dx_i = p_i"]
                Linearised linearised "" { on -10.0, 10.0; }
            }
            block {
                #[doc = "W x + b: one output per row of W"]
                Affine affine
                #[doc = "rows of a table of parameters, one after another, each lane with its own"]
                Gather gather
                #[doc = "a unary op over a range"]
                Map map
                #[doc = "softmax cross-entropy of a range of logits; the loss is the last output, the probabilities are the others"]
                CrossEntropy softmax_cross_entropy
                #[doc = "mean of x_i, and mean of x_i^2 as the last output"]
                MeanAndMeanSquares reduce_mean_and_mean_squares
                #[doc = "rows of a table, one per token, plus rows of positions; a row of 0 for padding"]
                TokenEmbedding token_embedding
                #[doc = "W x + b for each token, or max(W x + b, 0)"]
                TokenAffine token_affine
                #[doc = "gain (x - mean)/sqrt(variance + eps) + bias for each token"]
                LayerNorm layer_norm
                #[doc = "gain x/sqrt(mean of x^2 + eps) over a range, or for each token"]
                RmsNorm rms_norm
                #[doc = "softmax(q k^T/sqrt(d)) v for each head, over the tokens not after the query's"]
                CausalAttention causal_attention
                #[doc = "mean over tokens of the softmax cross-entropy of their logits"]
                TokenCrossEntropy token_cross_entropy
                #[doc = "x_i + y_i over two ranges"]
                AddRanges add_ranges
                #[doc = "exp(x_i) / sum of exp(x), shifted by the largest; dx_i = y_i (g_i - sum of g_j y_j)"]
                Softmax softmax
                #[doc = "x_i - log of the sum of exp(x), shifted by the largest; dx_i = g_i - exp(y_i) sum of g_j"]
                LogSoftmax log_softmax
            }
        }
    };
}
