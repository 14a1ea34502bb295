//! Values and gradients at the edges of the domains: zeros of both signs, infinities, NaN, kinks, overflow. One row a
//! case, for plain numbers and in every lane.

use burtorch_core::simd::{F32x4, F32x8, F32x16, F64x2, F64x4, F64x8};
use burtorch_core::{DType, Float, Graph, Op, Scalar};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Op, operands, value, gradient of each operand.
type Row = (Op, &'static [f64], f64, &'static [f64]);

/// Rows that are exact in both precisions.
const EXACT: &[Row] = &[
    (Op::Relu, &[0.0], 0.0, &[0.0]),
    (Op::Relu, &[-0.0], 0.0, &[0.0]),
    // Mistake of earlier engines: a relu derivative that multiplies by the output.
    (Op::Relu, &[3.0], 3.0, &[1.0]),
    (Op::Relu, &[-3.0], 0.0, &[0.0]),
    (Op::Relu, &[INF], INF, &[1.0]),
    (Op::Relu, &[-INF], 0.0, &[0.0]),
    (Op::Relu, &[NAN], NAN, &[NAN]),
    (Op::Abs, &[0.0], 0.0, &[0.0]),
    (Op::Abs, &[-0.0], 0.0, &[0.0]),
    (Op::Abs, &[-2.0], 2.0, &[-1.0]),
    (Op::Abs, &[-INF], INF, &[-1.0]),
    (Op::Abs, &[NAN], NAN, &[NAN]),
    (Op::Neg, &[0.0], -0.0, &[-1.0]),
    (Op::Neg, &[NAN], NAN, &[-1.0]),
    (Op::Sqrt, &[0.0], 0.0, &[INF]),
    (Op::Sqrt, &[-0.0], -0.0, &[-INF]),
    (Op::Sqrt, &[-1.0], NAN, &[NAN]),
    (Op::Sqrt, &[4.0], 2.0, &[0.25]),
    (Op::Sqrt, &[INF], INF, &[0.0]),
    (Op::InvSqrt, &[0.0], INF, &[-INF]),
    (Op::InvSqrt, &[-0.0], -INF, &[-INF]),
    (Op::InvSqrt, &[-1.0], NAN, &[NAN]),
    (Op::InvSqrt, &[INF], 0.0, &[0.0]),
    (Op::InvSqrt, &[4.0], 0.5, &[-0.0625]),
    (Op::Inv, &[0.0], INF, &[-INF]),
    (Op::Inv, &[-0.0], -INF, &[-INF]),
    (Op::Inv, &[INF], 0.0, &[0.0]),
    (Op::Inv, &[NAN], NAN, &[NAN]),
    (Op::Log, &[0.0], -INF, &[INF]),
    (Op::Log, &[1.0], 0.0, &[1.0]),
    (Op::Log, &[-1.0], NAN, &[NAN]),
    (Op::Log, &[-INF], NAN, &[NAN]),
    (Op::Log, &[INF], INF, &[0.0]),
    (Op::NegLog, &[0.0], INF, &[-INF]),
    (Op::NegLog, &[-1.0], NAN, &[NAN]),
    (Op::NegLog, &[INF], -INF, &[0.0]),
    (Op::Log1p, &[-1.0], -INF, &[INF]),
    (Op::Log1p, &[-2.0], NAN, &[NAN]),
    (Op::Log1p, &[0.0], 0.0, &[1.0]),
    (Op::Log1p, &[-0.0], -0.0, &[1.0]),
    (Op::Log1p, &[INF], INF, &[0.0]),
    (Op::Exp, &[0.0], 1.0, &[1.0]),
    (Op::Exp, &[1000.0], INF, &[INF]),
    (Op::Exp, &[-1000.0], 0.0, &[0.0]),
    (Op::Exp, &[-INF], 0.0, &[0.0]),
    (Op::Exp, &[NAN], NAN, &[NAN]),
    (Op::Expm1, &[0.0], 0.0, &[1.0]),
    (Op::Expm1, &[-0.0], -0.0, &[1.0]),
    (Op::Expm1, &[-INF], -1.0, &[0.0]),
    (Op::Tanh, &[0.0], 0.0, &[1.0]),
    (Op::Tanh, &[-0.0], -0.0, &[1.0]),
    (Op::Tanh, &[INF], 1.0, &[0.0]),
    (Op::Tanh, &[-INF], -1.0, &[0.0]),
    (Op::Tanh, &[NAN], NAN, &[NAN]),
    (Op::Sigmoid, &[0.0], 0.5, &[0.25]),
    (Op::Sigmoid, &[-1000.0], 0.0, &[0.0]),
    (Op::Sigmoid, &[1000.0], 1.0, &[0.0]),
    (Op::Sigmoid, &[INF], 1.0, &[0.0]),
    (Op::Sigmoid, &[NAN], NAN, &[NAN]),
    (Op::Sin, &[0.0], 0.0, &[1.0]),
    (Op::Sin, &[-0.0], -0.0, &[1.0]),
    (Op::Sin, &[INF], NAN, &[NAN]),
    (Op::Cos, &[0.0], 1.0, &[0.0]),
    (Op::Cos, &[-INF], NAN, &[NAN]),
    (Op::Softplus, &[1000.0], 1000.0, &[1.0]),
    (Op::Softplus, &[-1000.0], 0.0, &[0.0]),
    (Op::Softplus, &[INF], INF, &[1.0]),
    (Op::Softplus, &[NAN], NAN, &[NAN]),
    (Op::Sqr, &[-0.0], 0.0, &[0.0]),
    (Op::Sqr, &[-INF], INF, &[-INF]),
    (Op::Pow3, &[-0.0], -0.0, &[0.0]),
    (Op::Pow3, &[-2.0], -8.0, &[12.0]),
    (Op::Add, &[-0.0, -0.0], -0.0, &[1.0, 1.0]),
    (Op::Add, &[INF, -INF], NAN, &[1.0, 1.0]),
    (Op::Sub, &[0.0, 0.0], 0.0, &[1.0, -1.0]),
    (Op::Div, &[1.0, 0.0], INF, &[INF, -INF]),
    (Op::Div, &[1.0, -0.0], -INF, &[-INF, -INF]),
    (Op::Div, &[0.0, 0.0], NAN, &[INF, NAN]),
    (Op::Div, &[1.0, INF], 0.0, &[0.0, 0.0]),
    (Op::Mul, &[0.0, INF], NAN, &[INF, 0.0]),
    (Op::Mul, &[-0.0, 3.0], -0.0, &[3.0, 0.0]),
    (Op::Pow, &[0.0, 0.0], 1.0, &[0.0, 0.0]),
    (Op::Pow, &[0.0, 1.0], 0.0, &[1.0, 0.0]),
    (Op::Pow, &[0.0, 2.0], 0.0, &[0.0, 0.0]),
    (Op::Pow, &[0.0, -1.0], INF, &[-INF, -INF]),
    (Op::Pow, &[-2.0, 2.0], 4.0, &[-4.0, NAN]),
    (Op::Pow, &[-2.0, 0.5], NAN, &[NAN, NAN]),
    (Op::Pow, &[1.0, NAN], 1.0, &[NAN, NAN]),
    (Op::Pow, &[NAN, 0.0], 1.0, &[NAN, NAN]),
    (Op::Pow, &[1.0, 5.0], 1.0, &[5.0, 0.0]),
    (Op::PowConstant, &[0.0, 0.0], 1.0, &[0.0, 0.0]),
    (Op::PowConstant, &[NAN, 0.0], 1.0, &[NAN, 0.0]),
    (Op::PowConstant, &[-3.0, 4.0], 81.0, &[-108.0, 0.0]),
    (Op::MulByConstant, &[3.0, INF], INF, &[INF, 0.0]),
    (Op::DivByConstant, &[3.0, 0.0], INF, &[INF, 0.0]),
    (Op::AddConstant, &[-0.0, -0.0], -0.0, &[1.0, 0.0]),
    (Op::Max, &[2.0, 2.0], 2.0, &[0.5, 0.5]),
    (Op::Max, &[3.0, 2.0], 3.0, &[1.0, 0.0]),
    (Op::Max, &[0.0, -0.0], 0.0, &[0.5, 0.5]),
    (Op::Max, &[-0.0, 0.0], 0.0, &[0.5, 0.5]),
    (Op::Max, &[-0.0, -0.0], -0.0, &[0.5, 0.5]),
    (Op::Max, &[INF, INF], INF, &[0.5, 0.5]),
    (Op::Max, &[NAN, 1.0], NAN, &[NAN, NAN]),
    (Op::Max, &[1.0, NAN], NAN, &[NAN, NAN]),
    (Op::Min, &[2.0, 2.0], 2.0, &[0.5, 0.5]),
    (Op::Min, &[3.0, 2.0], 2.0, &[0.0, 1.0]),
    (Op::Min, &[0.0, -0.0], -0.0, &[0.5, 0.5]),
    (Op::Min, &[-0.0, 0.0], -0.0, &[0.5, 0.5]),
    (Op::Min, &[0.0, 0.0], 0.0, &[0.5, 0.5]),
    (Op::Min, &[NAN, 1.0], NAN, &[NAN, NAN]),
    (Op::Min, &[0.0, NAN], NAN, &[NAN, NAN]),
    (Op::Mean, &[3.0, 5.0], 4.0, &[0.5, 0.5]),
    (Op::NegativeMean, &[3.0, 5.0], -4.0, &[-0.5, -0.5]),
    (Op::AddSquares, &[3.0, -4.0], 25.0, &[6.0, -8.0]),
    (Op::MeanSquares, &[3.0, -4.0], 12.5, &[3.0, -4.0]),
    (Op::Asin, &[1.0], std::f64::consts::FRAC_PI_2, &[INF]),
    (Op::Asin, &[-0.0], -0.0, &[1.0]),
    (Op::Asin, &[1.5], NAN, &[NAN]),
    (Op::Asin, &[INF], NAN, &[NAN]),
    (Op::Acos, &[1.0], 0.0, &[-INF]),
    (Op::Acos, &[-1.5], NAN, &[NAN]),
    (Op::Atan, &[-0.0], -0.0, &[1.0]),
    (Op::Sinh, &[-0.0], -0.0, &[1.0]),
    (Op::Sinh, &[-INF], -INF, &[INF]),
    (Op::Sinh, &[1000.0], INF, &[INF]),
    (Op::Cosh, &[0.0], 1.0, &[0.0]),
    (Op::Cosh, &[-INF], INF, &[-INF]),
    (Op::Asinh, &[-0.0], -0.0, &[1.0]),
    (Op::Asinh, &[-INF], -INF, &[0.0]),
    (Op::Acosh, &[1.0], 0.0, &[INF]),
    (Op::Acosh, &[0.5], NAN, &[NAN]),
    (Op::Acosh, &[-3.0], NAN, &[NAN]),
    (Op::Acosh, &[INF], INF, &[0.0]),
    (Op::Atanh, &[1.0], INF, &[INF]),
    (Op::Atanh, &[-1.0], -INF, &[INF]),
    (Op::Atanh, &[2.0], NAN, &[NAN]),
    (Op::Atanh, &[-0.0], -0.0, &[1.0]),
    (Op::Log2, &[0.0], -INF, &[INF]),
    (Op::Log2, &[-1.0], NAN, &[NAN]),
    (Op::Log2, &[INF], INF, &[0.0]),
    (Op::Log10, &[0.0], -INF, &[INF]),
    (Op::Log10, &[-1.0], NAN, &[NAN]),
    (Op::Exp2, &[-INF], 0.0, &[0.0]),
    (Op::Exp2, &[2000.0], INF, &[INF]),
    (Op::Exp10, &[-INF], 0.0, &[0.0]),
    (Op::Exp10, &[400.0], INF, &[INF]),
    (Op::Cbrt, &[0.0], 0.0, &[INF]),
    (Op::Cbrt, &[-0.0], -0.0, &[INF]),
    (Op::Cbrt, &[-INF], -INF, &[0.0]),
    (Op::Erfc, &[0.0], 1.0, &[-std::f64::consts::FRAC_2_SQRT_PI]),
    (Op::Erfc, &[INF], 0.0, &[0.0]),
    (Op::Erfc, &[-INF], 2.0, &[0.0]),
    (Op::Ndtr, &[-INF], 0.0, &[0.0]),
    (Op::Ndtr, &[INF], 1.0, &[0.0]),
    (Op::Lgamma, &[INF], INF, &[INF]),
    (Op::Lgamma, &[-INF], INF, &[NAN]),
    (Op::Lgamma, &[-2.0], INF, &[NAN]),
    (Op::Lgamma, &[0.0], INF, &[-INF]),
    (Op::Lgamma, &[-0.0], INF, &[INF]),
    (Op::Digamma, &[0.0], -INF, &[INF]),
    (Op::Digamma, &[-0.0], INF, &[INF]),
    (Op::Digamma, &[-1.0], NAN, &[INF]),
    (Op::Digamma, &[INF], INF, &[0.0]),
    (Op::Silu, &[-INF], -0.0, &[0.0]),
    (Op::Silu, &[INF], INF, &[1.0]),
    (Op::Silu, &[0.0], 0.0, &[0.5]),
    (Op::Softsign, &[-INF], -1.0, &[0.0]),
    (Op::Softsign, &[-1.0], -0.5, &[0.25]),
    (Op::LeakyRelu, &[-2.0, 0.25], -0.5, &[0.25, 0.0]),
    (Op::LeakyRelu, &[0.0, 0.25], 0.0, &[0.25, 0.0]),
    (Op::LeakyRelu, &[0.0, -1.0], -0.0, &[0.0, 0.0]),
    (Op::LeakyRelu, &[0.0, 3.0], 0.0, &[1.0, 0.0]),
    (Op::LeakyRelu, &[NAN, 0.25], NAN, &[NAN, 0.0]),
    (Op::Elu, &[-INF, 2.0], -2.0, &[0.0, 0.0]),
    (Op::Elu, &[0.0, 2.0], 0.0, &[1.0, 0.0]),
    (Op::Elu, &[3.0, 2.0], 3.0, &[1.0, 0.0]),
    (Op::Sign, &[-0.0], 0.0, &[0.0]),
    (Op::Sign, &[-3.0], -1.0, &[0.0]),
    (Op::Sign, &[NAN], NAN, &[NAN]),
    (Op::Floor, &[-0.5], -1.0, &[0.0]),
    (Op::Ceil, &[-0.5], -0.0, &[0.0]),
    (Op::Round, &[2.5], 2.0, &[0.0]),
    (Op::Round, &[-0.3], -0.0, &[0.0]),
    (Op::Round, &[3.5], 4.0, &[0.0]),
    (Op::Round, &[INF], INF, &[0.0]),
    (Op::Hypot, &[0.0, 0.0], 0.0, &[0.0, 0.0]),
    (Op::Hypot, &[INF, NAN], INF, &[NAN, NAN]),
    (Op::Hypot, &[-INF, 3.0], INF, &[-1.0, 0.0]),
    (Op::Logaddexp, &[INF, INF], INF, &[0.5, 0.5]),
    (Op::Logaddexp, &[-INF, -INF], -INF, &[0.5, 0.5]),
    (Op::Logaddexp, &[-INF, 3.0], 3.0, &[0.0, 1.0]),
    (Op::Xlogy, &[0.0, 0.0], 0.0, &[0.0, 0.0]),
    (Op::Xlogy, &[0.0, NAN], NAN, &[NAN, NAN]),
    (Op::Xlogy, &[2.0, 1.0], 0.0, &[0.0, 2.0]),
    (Op::Xlogy, &[2.0, -1.0], NAN, &[NAN, NAN]),
    (Op::FloorDivide, &[-7.0, 2.0], -4.0, &[0.0, 0.0]),
    (Op::FloorDivide, &[1.0, 0.0], INF, &[0.0, 0.0]),
    (Op::FloorDivide, &[-5.0, INF], -1.0, &[0.0, 0.0]),
    (Op::Remainder, &[-7.0, 2.0], 1.0, &[1.0, 4.0]),
    (Op::Remainder, &[7.0, -2.0], -1.0, &[1.0, 4.0]),
    (Op::Remainder, &[5.0, INF], 5.0, &[1.0, 0.0]),
    (Op::Remainder, &[5.0, 0.0], NAN, &[NAN, NAN]),
    (Op::ReduceMul, &[0.0, 2.0, 3.0], 0.0, &[6.0, 0.0, 0.0]),
    (Op::ReduceMul, &[0.0, INF, 3.0], NAN, &[INF, 0.0, NAN]),
    (Op::ReduceMul, &[5.0], 5.0, &[1.0]),
    (Op::ReduceSub, &[5.0], 5.0, &[1.0]),
    (Op::ReduceSub, &[5.0, 1.0, 2.0], 2.0, &[1.0, -1.0, -1.0]),
    (Op::ReduceSum, &[-0.0; 16], -0.0, &[1.0; 16]),
    (Op::ReduceSum, &[-0.0; 19], -0.0, &[1.0; 19]),
    (Op::ReduceSum, &[-0.0; 3], -0.0, &[1.0; 3]),
    (Op::ReduceMean, &[1.0, INF], INF, &[0.5, 0.5]),
    (Op::ReduceNegativeMean, &[3.0, 5.0], -4.0, &[-0.5, -0.5]),
    (Op::ReduceMeanSquares, &[3.0, -4.0], 12.5, &[3.0, -4.0]),
    (Op::Variance, &[7.0], NAN, &[NAN]),
    (Op::VarianceBiased, &[7.0], 0.0, &[0.0]),
    (Op::Variance, &[0.1; 5], 0.0, &[0.0; 5]),
    (Op::Variance, &[0.1; 23], 0.0, &[0.0; 23]),
    (Op::VarianceBiased, &[0.1; 7], 0.0, &[0.0; 7]),
    (Op::Variance, &[1.0, 2.0, 3.0], 1.0, &[-1.0, 0.0, 1.0]),
    (Op::Variance, &[1.0, NAN], NAN, &[NAN, NAN]),
    (Op::ReduceMax, &[2.0, 5.0, 5.0, 1.0, 5.0, 5.0], 5.0, &[0.0, 0.25, 0.25, 0.0, 0.25, 0.25]),
    (Op::ReduceMax, &[-0.0, 0.0], 0.0, &[0.5, 0.5]),
    (Op::ReduceMax, &[-INF, -INF], -INF, &[0.5, 0.5]),
    (Op::ReduceMax, &[1.0, NAN], NAN, &[NAN, NAN]),
    (Op::ReduceMax, &[7.0], 7.0, &[1.0]),
    (Op::ReduceMin, &[2.0, 5.0, 1.0, 1.0], 1.0, &[0.0, 0.0, 0.5, 0.5]),
    (Op::ReduceMin, &[NAN, 1.0], NAN, &[NAN, NAN]),
    (Op::LogSumExp, &[-3.5], -3.5, &[1.0]),
    (Op::LogSumExp, &[1000.0], 1000.0, &[1.0]),
    (Op::LogSumExp, &[-INF, 2.0], 2.0, &[0.0, 1.0]),
    (Op::LogSumExp, &[INF, 2.0], INF, &[1.0, 0.0]),
    (Op::LogSumExp, &[INF, INF], INF, &[0.5, 0.5]),
    (Op::LogSumExp, &[-INF, -INF], -INF, &[0.5, 0.5]),
    (Op::LogSumExp, &[-INF], -INF, &[1.0]),
    (Op::LogSumExp, &[0.0, NAN], NAN, &[NAN, NAN]),
    (Op::LogSumExp, &[INF, NAN], NAN, &[NAN, NAN]),
    (Op::Norm2, &[3.0, -4.0], 5.0, &[0.6, -0.8]),
    (Op::Norm2, &[-2.0], 2.0, &[-1.0]),
    (Op::Norm2, &[0.0, 0.0], 0.0, &[0.0, 0.0]),
    (Op::Norm2, &[-0.0], 0.0, &[0.0]),
    (Op::Norm2, &[-INF, 1.0], INF, &[-1.0, 0.0]),
    (Op::Norm2, &[INF, 1.0, NAN], NAN, &[NAN, NAN, NAN]),
];

/// Rows that are exact in double precision.
const EXACT_F64: &[Row] = &[
    (Op::Div, &[1e-200, 1e-200], 1.0, &[1e200, -1e200]),
    (Op::ReduceMul, &[1e-200, 1e-200, 3.0], 0.0, &[3e-200, 3e-200, 0.0]),
    (Op::Relu, &[5e-324], 5e-324, &[1.0]),
    (Op::Mul, &[5e-324, 1.0], 5e-324, &[1.0, 5e-324]),
    (Op::Add, &[5e-324, 5e-324], 1e-323, &[1.0, 1.0]),
    (Op::Mul, &[1e-160, 1e-160], 1e-320, &[1e-160, 1e-160]),
    (Op::Sub, &[2.5e-308, 2.4e-308], 2.5e-308 - 2.4e-308, &[1.0, -1.0]),
    (Op::VarianceBiased, &[1e200, -1e200], INF, &[1e200 * 2.0 / 2.0, -1e200]),
    (Op::ReduceMean, &[1e308, -1e308], 0.0, &[0.5, 0.5]),
    (Op::Norm2, &[1.5e-323, 2e-323], 2.5e-323, &[0.6, 0.8]),
    (Op::LogSumExp, &[1e308, -1e308], 1e308, &[1.0, 0.0]),
];

/// Rows that are exact in single precision.
const EXACT_F32: &[Row] = &[
    (Op::Div, &[1e-30, 1e-30], 1.0, &[1e30, -1e30]),
    (Op::Relu, &[1e-45], 1e-45, &[1.0]),
    (Op::Mul, &[1e-45, 1.0], 1e-45, &[1.0, 1e-45]),
    (Op::Add, &[1e-45, 1e-45], 3e-45, &[1.0, 1.0]),
    (Op::Sqr, &[1e30], INF, &[2e30]),
];

/// Rows within four units of the last place.
const CLOSE: &[Row] = &[
    (Op::Hypot, &[3.0, -4.0], 5.0, &[0.6, -0.8]),
    (Op::Tanh, &[20.0], 1.0, &[1.6993417021166355e-17]),
    (Op::Tanh, &[-20.0], -1.0, &[1.6993417021166355e-17]),
    (Op::Sigmoid, &[40.0], 1.0, &[4.248354255291589e-18]),
    (Op::Sigmoid, &[-40.0], 4.248354255291589e-18, &[4.248354255291589e-18]),
    (Op::Softplus, &[-40.0], 4.248354255291589e-18, &[4.248354255291589e-18]),
    (Op::Softplus, &[0.0], std::f64::consts::LN_2, &[0.5]),
    (Op::Inv, &[3.0], 1.0 / 3.0, &[-1.0 / 9.0]),
    (Op::InvSqrt, &[2.0], std::f64::consts::FRAC_1_SQRT_2, &[-0.1767766952966369]),
    (Op::Log, &[2.0], std::f64::consts::LN_2, &[0.5]),
    (Op::Exp, &[1.0], std::f64::consts::E, &[std::f64::consts::E]),
    (Op::Expm1, &[-60.0], -1.0, &[8.75651076269652e-27]),
    (Op::Pow, &[2.0, 0.5], std::f64::consts::SQRT_2, &[0.3535533905932738, 0.9802581434685472]),
    (Op::LogSumExp, &[1000.0, 1000.0], 1000.0 + std::f64::consts::LN_2, &[0.5, 0.5]),
    (Op::LogSumExp, &[0.0, -40.0], 4.248354255291589e-18, &[1.0, 4.248354255291589e-18]),
    (Op::Norm2, &[1.0, 1.0], std::f64::consts::SQRT_2, &[std::f64::consts::FRAC_1_SQRT_2; 2]),
    (Op::Variance, &[1e8, 1e8 + 8.0, 1e8 + 16.0], 64.0, &[-8.0, 0.0, 8.0]),
];

/// The variance of numbers that the two-pass formula alone gets right.
const CLOSE_F64: &[Row] = &[
    (Op::VarianceBiased, &[1e8, 1e8 + 1.0, 1e8 + 2.0], 2.0 / 3.0, &[-2.0 / 3.0, 0.0, 2.0 / 3.0]),
    (Op::Norm2, &[3e200, 4e200], 5e200, &[0.6, 0.8]),
    (Op::Norm2, &[3e-200, -4e-200], 5e-200, &[0.6, -0.8]),
];

/// Value and gradients with `at` in one lane and 0.75 in the others.
fn run<S: Scalar>(op: Op, at: &[f64], lane: usize) -> (S, Vec<S>) {
    let mut graph = Graph::<S>::new();
    let xs: Vec<S> = at.iter().map(|&x| S::lit(0.75).with_lane(lane, S::Elem::from_f64(x))).collect();
    let leaves = graph.vector(&xs).unwrap();
    let x = leaves.first();
    let node = match (graph.unary_op(op, x), leaves.get(1)) {
        (Ok(node), _) => Ok(node),
        (_, Some(y)) => graph.binary_op(op, x, y),
        (error, None) => error,
    };
    let node = node.or_else(|_| graph.reduce(op, leaves.into(), &[])).unwrap();
    graph.backward(node).unwrap();
    (graph.value(node).unwrap(), (0..at.len()).map(|k| graph.grad(leaves.get(k).unwrap()).unwrap()).collect())
}

fn same(found: f64, wanted: f64, ulp: f64, epsilon: f64) -> bool {
    found == wanted || (found.is_nan() && wanted.is_nan()) || (found - wanted).abs() <= ulp * epsilon * wanted.abs()
}

fn check<S: Scalar>(rows: &[Row], ulp: f64) {
    let epsilon = if S::Elem::DTYPE == DType::Float32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    for (number, &(op, at, value, grads)) in rows.iter().enumerate() {
        let lane = number % S::LANES;
        let (found_value, found_grads) = run::<S>(op, at, lane);
        let found = found_value.lane(lane).to_f64();
        let name = format!("{}{at:?} in lane {lane} of {} {:?}", op.name(), S::LANES, S::Elem::DTYPE);
        let rounded = |x: f64| S::Elem::from_f64(x).to_f64();
        assert!(same(found, rounded(value), ulp, epsilon), "{name}: {found} instead of {value}");
        if value == 0.0 {
            assert_eq!(found.is_sign_negative(), value.is_sign_negative(), "{name}: sign of zero");
        }
        for (k, (found, &wanted)) in found_grads.iter().zip(grads).enumerate() {
            let found = found.lane(lane).to_f64();
            assert!(same(found, rounded(wanted), ulp, epsilon), "{name}: gradient {k} is {found} instead of {wanted}");
        }
        // The content of one lane changes nothing in the others.
        if S::LANES > 1 {
            let other = (lane + 1) % S::LANES;
            let (plain_value, plain_grads) = run::<S>(op, &vec![0.75; at.len()], 0);
            let bits = |s: S| s.lane(other).to_f64().to_bits();
            assert_eq!(bits(found_value), bits(plain_value), "{name}: lane {other}");
            assert!(found_grads.iter().zip(plain_grads).all(|(&a, b)| bits(a) == bits(b)), "{name}: lane {other}");
        }
    }
}

fn check_single<S: Scalar<Elem = f32>>() {
    check::<S>(EXACT, 0.0);
    check::<S>(EXACT_F32, 0.0);
    check::<S>(CLOSE, 4.0);
}

fn check_double<S: Scalar<Elem = f64>>() {
    check::<S>(EXACT, 0.0);
    check::<S>(EXACT_F64, 0.0);
    check::<S>(CLOSE, 4.0);
    check::<S>(CLOSE_F64, 4.0);
}

#[test]
fn single_precision() {
    check_single::<f32>();
}

#[test]
fn double_precision() {
    check_double::<f64>();
}

#[test]
fn lanes_of_single_precision() {
    check_single::<F32x4>();
    check_single::<F32x8>();
    check_single::<F32x16>();
}

#[test]
fn lanes_of_double_precision() {
    check_double::<F64x2>();
    check_double::<F64x4>();
    check_double::<F64x8>();
}

/// Masks select instead of multiplying: an infinite adjoint does not reach the operand that is switched off.
#[test]
fn an_infinite_adjoint_does_not_pass_a_mask() {
    for (op, at, wanted) in
        [(Op::Relu, vec![-1.0], vec![0.0]), (Op::Max, vec![1.0, 2.0], vec![0.0, INF]), (Op::Abs, vec![0.0], vec![0.0])]
    {
        let mut graph = Graph::<f64>::new();
        let leaves = graph.vector(&at).unwrap();
        let node = graph.unary_op(op, leaves.first());
        let node = node.or_else(|_| graph.binary_op(op, leaves.first(), leaves.get(1).unwrap())).unwrap();
        graph.backward_with(node, INF, &mut []).unwrap();
        let found: Vec<f64> = (0..at.len()).map(|k| graph.grad(leaves.get(k).unwrap()).unwrap()).collect();
        assert_eq!(found, wanted, "{}", op.name());
    }
}

/// Twice an operand overflows, twice its share of the mean does not.
#[test]
fn partials_of_mean_squares_and_variances_do_not_overflow_on_their_way() {
    let x = [1.5e308, 0.0, 0.0, 0.0];
    for (op, wanted) in [(Op::ReduceMeanSquares, 0.75e308), (Op::VarianceBiased, 0.5625e308), (Op::Variance, 0.75e308)]
    {
        let mut graph = Graph::<f64>::new();
        let leaves = graph.vector(&x).unwrap();
        let node = graph.reduce(op, leaves.into(), &[]).unwrap();
        graph.backward(node).unwrap();
        let found = graph.grad(leaves.first()).unwrap();
        assert!((found / wanted - 1.0).abs() < 1e-15, "{}: {found:e} instead of {wanted:e}", op.name());
    }
    let mut graph = Graph::<f64>::new();
    let leaves = graph.vector(&x).unwrap();
    let (_, mean_of_squares) = graph.reduce_mean_and_mean_squares(leaves).unwrap();
    graph.backward(mean_of_squares).unwrap();
    assert_eq!(graph.grad(leaves.first()).unwrap(), 0.75e308);
}

#[test]
fn an_empty_or_unequal_operand_list_is_an_error() {
    use burtorch_core::{Error, Operands};
    let mut graph = Graph::<f64>::new();
    let v = graph.vector(&[1.0, 2.0]).unwrap();
    let none = v.slice(1, 1).unwrap();
    assert!(matches!(graph.reduce(Op::ReduceSum, none.into(), &[]), Err(Error::EmptyReduction { .. })));
    assert!(matches!(graph.reduce(Op::ReduceMul, Operands::List(&[]), &[]), Err(Error::EmptyReduction { .. })));
    assert!(matches!(graph.map(Op::Exp, none), Err(Error::EmptyReduction { .. })));
    assert!(matches!(graph.inner_product(none.into(), none.into(), None, &[]), Err(Error::EmptyReduction { .. })));
    let one = v.slice(0, 1).unwrap();
    let unequal = graph.inner_product(v.into(), one.into(), None, &[]);
    assert_eq!(unequal, Err(Error::LengthMismatch { op: "inner_product", left: 2, right: 1 }));
    assert_eq!(graph.len(), 2);
}
