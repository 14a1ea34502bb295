//! Functions of float128 over its whole range: each value is the nearest number, and zeros, infinities and NaN are those of
//! float64.

use burtorch_core::Op;

use super::sweep::at;

const TABLE: &str = include_str!("../../data/f128_functions.txt");

#[test]
fn functions_of_f128_give_the_nearest_number() {
    let read = |word: &str| f128::from_bits(u128::from_str_radix(word, 16).unwrap());
    let mut wrong = Vec::new();
    for line in TABLE.lines() {
        let (point, nearest) = line.split_once(" | ").unwrap();
        let words: Vec<&str> = point.split(' ').collect();
        let operands: Vec<f128> = words[1..].iter().map(|word| read(word)).collect();
        let found = at(Op::from_name(words[0]).unwrap(), operands[0], *operands.last().unwrap())[0];
        if found.to_bits() != read(nearest).to_bits() {
            wrong.push(format!("{line}, found {:x}", found.to_bits()));
        }
    }
    assert!(TABLE.lines().count() >= 700);
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn functions_of_f128_have_the_zeros_infinities_and_nans_of_f64() {
    let sizes = [0.0, 0.5, 1.0, 2.0, 3.0, f64::INFINITY];
    let numbers: Vec<f64> = sizes.into_iter().flat_map(|x| [x, -x]).chain([f64::NAN]).collect();
    let kind = |x: f64| (x.is_nan(), x.is_infinite(), x == 0.0, !x.is_nan() && x.is_sign_negative());
    let mut names: Vec<&str> = TABLE.lines().filter_map(|line| line.split(' ').next()).collect();
    names.dedup();
    for op in names.iter().map(|name| Op::from_name(name).unwrap()) {
        for (x, y) in numbers.iter().flat_map(|&x| numbers.iter().map(move |&y| (x, y))) {
            let (plain, wide) = (at(op, x, y)[0], at(op, f128::from(x), f128::from(y))[0] as f64);
            assert_eq!(kind(wide), kind(plain), "{}({x}, {y}) is {wide}, of float64 {plain}", op.name());
        }
    }
}
