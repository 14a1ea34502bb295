//! THE list of elementary functions: one row per function. The trait [`RowMath`](crate::scalar::RowMath) and its
//! implementations are generated from here, as are [`Elementary`](super::Elementary) and [`slices`](super::slices).
//!
//! Grammar of a row: the documentation, the name, the type that stands for it in lists of code, and its arguments with the
//! value in float128; in f32 and f64 a function runs the body of that name in [`math`](super::math), an `exact` one the
//! CPU's instruction, which vectors have from the trait in braces. A function that is an op of the table is differentiated
//! by that op's row, which has the same type name. The others (`helper`) are partials of ops; their own derivatives are
//! given here, in the form of the table: the contribution of the value's adjoint `g` to each argument, over any
//! `S: RowMath`.
//!
//! A `rare` function has one copy of its body for vectors of f32 and one for f64. Others have one for each width and CPU
//! level, and an inlined one wherever a bundle of a program calls them.

/// Calls `$then!` with the list.
macro_rules! for_each_function {
    ($then:ident) => {
        $then! {
            op {
                /// e^x; 1 ULP.
                exp Exp { |x| wide::exp(x) }
                /// e^x - 1; 1 ULP.
                expm1 Expm1 { |x| wide::exp_m1(x) }
                /// The natural logarithm; 1 ULP.
                log Log { |x| wide::ln(x) }
                /// The hyperbolic tangent; 3 ULP.
                tanh Tanh { |x| wide::tanh(x) }
                /// 1 / (1 + e^-x); 3 ULP.
                sigmoid Sigmoid { |x| wide::sigmoid(x) }
                /// log(1 + x); 1 ULP.
                log1p Log1p { |x| wide::ln_1p(x) }
                /// log(1 + e^x), whose derivative is the sigmoid; 2 ULP.
                softplus Softplus { |x| wide::softplus(x) }
                /// The sine; 1 ULP for any x.
                sin Sin { |x| wide::sin(x) }
                /// The cosine; 1 ULP for any x.
                cos Cos { |x| wide::cos(x) }
                /// The tangent; 2 ULP for any x.
                tan Tan { |x| wide::tan(x) }
                /// The error function; 1 ULP.
                erf Erf { |x| wide::erf(x) }
                /// x times the normal distribution at x, exact (not the tanh approximation); 4 ULP.
                gelu Gelu { |x| wide::gelu(x) }
                /// The angle whose sine is x; 2 ULP.
                asin Asin { rare |x| wide::asin(x) }
                /// The angle whose cosine is x; 2 ULP.
                acos Acos { rare |x| wide::acos(x) }
                /// The angle whose tangent is x; 2 ULP.
                atan Atan { rare |x| wide::atan(x) }
                /// The hyperbolic sine; 2 ULP.
                sinh Sinh { rare |x| wide::sinh(x) }
                /// The hyperbolic cosine; 2 ULP.
                cosh Cosh { rare |x| wide::cosh(x) }
                /// The number whose hyperbolic sine is x; 2 ULP.
                asinh Asinh { rare |x| wide::asinh(x) }
                /// The number not below 0 whose hyperbolic cosine is x; 2 ULP.
                acosh Acosh { rare |x| wide::acosh(x) }
                /// The number whose hyperbolic tangent is x; 2 ULP.
                atanh Atanh { rare |x| wide::atanh(x) }
                /// The logarithm to base 2; 1 ULP.
                log2 Log2 { rare |x| wide::log2(x) }
                /// The logarithm to base 10; 1 ULP.
                log10 Log10 { rare |x| wide::log10(x) }
                /// 2^x; 1 ULP.
                exp2 Exp2 { rare |x| wide::exp2(x) }
                /// 10^x; 1 ULP.
                exp10 Exp10 { rare |x| wide::exp10(x) }
                /// The cube root; 1 ULP.
                cbrt Cbrt { rare |x| wide::cbrt(x) }
                /// 1 - erf(x), accurate where it is small; 3 ULP.
                erfc Erfc { rare |x| wide::erfc(x) }
                /// The normal distribution: the integral of its density up to x; 3 ULP.
                ndtr Ndtr { rare |x| wide::normal(x) }
                /// log |gamma(x)|; 4 ULP of 1/2 or of what is larger.
                lgamma Lgamma { rare |x| wide::ln_gamma(x) }
                /// The derivative of lgamma; 4 ULP of 1/2 or of what is larger.
                digamma Digamma { rare |x| wide::digamma(x) }
            }
            op2 {
                /// The angle of the point (x, self) from the x axis, from -pi to pi; 2 ULP.
                atan2 Atan2 { |y, x| wide::atan2(y, x) }
                /// x to the power y; 1 ULP.
                pow Pow { |x, y| wide::powf(x, y) }
                /// sqrt(x^2 + y^2); 1 ULP.
                hypot Hypot { rare |x, y| wide::hypot(x, y) }
                /// The largest integer not above x/y; 1 ULP.
                floor_divide FloorDivide { rare |x, y| wide::floor_divide(x, y) }
                /// What is left of x after a whole number of y, with the sign of y; 0.5 ULP.
                remainder Remainder { rare |x, y| wide::remainder(x, y) }
            }
            exact {
                /// The square root, correctly rounded.
                sqrt Sqrt { StdFloat }
                /// The magnitude.
                abs Abs { SimdFloat }
                /// The largest integer not above x.
                floor Floor { StdFloat }
                /// The smallest integer not below x.
                ceil Ceil { StdFloat }
            }
            helper {
                /// The derivative of the sigmoid at x; 4 ULP.
                sigmoid_grad SigmoidGrad {
                    |x| wide::sigmoid_grad(x);
                    dx = |g, x, y| g * (y * -(S::lit(0.5) * x).tanh());
                }
                /// The derivative of tan at x: 1 + tan(x)^2; 2 ULP.
                tan_grad TanGrad {
                    |x| wide::tan_grad(x);
                    dx = |g, x, y| g * (S::lit(2.0) * x.tan() * y);
                }
                /// The derivative of erf at x: 2/sqrt(pi) e^(-x^2); 2 ULP.
                erf_grad ErfGrad {
                    |x| wide::erf_grad(x);
                    dx = |g, x, y| g * faded(y, S::lit(-2.0) * x * y);
                }
                /// The derivative of gelu at x: Phi(x) + x phi(x), accurate beside its root; 2.4 ULP measured, the aim is 2.
                gelu_grad GeluGrad {
                    |x| wide::gelu_grad(x);
                    dx = |g, x, y| { let p = x.normal_pdf(); g * faded(p, p * (S::lit(2.0) - x * x)) };
                }
                /// The density of the normal distribution: e^(-x^2/2) / sqrt(2 pi); 2 ULP.
                normal_pdf NormalPdf { rare
                    |x| wide::normal_pdf(x);
                    dx = |g, x, y| g * faded(y, -x * y);
                }
            }
            helper2 {
                /// x / (x^2 + y^2), a partial of atan2; 2 ULP.
                over_squares OverSquares {
                    |x, y| wide::over_squares(x, y);
                    dx = |g, x, y, z| g * over_squares_bend(x, y, |x, y| (y - x) * (y + x));
                    dy = |g, x, y, z| g * over_squares_bend(x, y, |x, y| S::lit(-2.0) * (x * y));
                }
                /// The derivative of x^y by x: y x^(y-1); 2 ULP.
                pow_dx PowDx {
                    |x, y| wide::pow_dx(x, y);
                    dx = |g, x, y, z| g * pow_dx_dx(x, y);
                    dy = |g, x, y, z| g * pow_dx_dy(x, y);
                }
                /// The derivative of x^y by y: x^y log x, NaN for negative x; 2 ULP.
                pow_dy PowDy {
                    |x, y| wide::pow_dy(x, y);
                    dx = |g, x, y, z| g * pow_dx_dy(x, y);
                    dy = |g, x, y, z| g * pow_dy_dy(x, y);
                }
                /// Derivative number n of digamma, for an integer n not below 1.
                polygamma Polygamma { rare
                    |x, n| wide::polygamma(x, n);
                    dx = |g, x, n, z| g * x.polygamma(n + S::lit(1.0));
                    dy = |g, x, n, z| S::lit(0.0);
                }
                /// The derivative of tanh at x where y = tanh(x); 6 ULP. The whole derivative by x is `dx`: y moves with x.
                tanh_grad TanhGrad {
                    |x, y| wide::tanh_grad(x, y);
                    dx = |g, x, y, z| g * (S::lit(-2.0) * y * z);
                    dy = |g, x, y, z| S::lit(0.0);
                }
            }
            slice {
                /// x where it is positive, otherwise 0; NaN stays NaN.
                relu Relu {}
            }
        }
    };
}

pub(crate) use for_each_function;
