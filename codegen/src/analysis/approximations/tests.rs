//! Verdicts on functions of kernels in text form.

use super::*;
use crate::analysis::Uses;

/// Takes a body that computes `%v`, stored in f16, and `%w`, stored in f32, from the tile `%t` and the number `%to`. Returns
/// the verdicts on its functions in order.
fn judged(body: &str) -> Vec<Verdict> {
    let kernel = kernel(body);
    let approximations = Approximations::of(&kernel, &Uses::of(&kernel));
    kernel.insts.keys().filter_map(|inst| approximations.verdict(inst)).collect()
}

fn kernel(body: &str) -> atlas_dsl::Verified<Kernel> {
    let has = |what| body.contains(what);
    let wide = if has("%w =") || has("%w,") { "store %z[%n : 16], %w\n" } else { "" };
    let z = if wide.is_empty() && !has("%z") { "" } else { ", %z: out f32[N]" };
    let i = if has("%i") { ", %i: out f16[N]" } else { "" };
    let text = format!(
        "kernel @k(%x: f32[N], %s0: f32, %y: out f16[N]{z}{i})\ndims N: ?16\n\
         grid (%n) = (tiles(N, 16)) {{\n%t = load %x[%n : 16]\n%one = splat 1.0 : f32[16]\n\
         %from = splat 0 : i32\n%to = splat 9 : i32\n{body}\n\
         %h = cast %v : f16[16]\nstore %y[%n : 16], %h\n{wide}}}"
    );
    atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// For each function in order, true if it may be approximate.
fn approximate(body: &str) -> Vec<bool> {
    judged(body).iter().map(|&v| v == Verdict::Approximate).collect()
}

#[track_caller]
fn tolerates(body: &str) {
    assert!(approximate(body).iter().all(|&a| a), "{body}");
}

#[track_caller]
fn refuses(body: &str) {
    let verdicts = judged(body);
    assert!(!verdicts.is_empty() && verdicts.iter().all(|v| matches!(v, Verdict::Magnified(_))), "{body}");
}

#[test]
fn what_keeps_an_error() {
    tolerates("%e = erf %t\n%s = add %one, %e\n%v = mul %t, %s");
    tolerates("%e = tanh %t\n%f = tanh %e\n%v = mul %f, %e");
    tolerates("%s = sin %t\n%a = abs %s\n%v = add %a, %one");
    tolerates("%v = loop %j in %from..%to carry (%c = %t) {\n%e = tanh %t\n%m = max %c, %e\nyield %m\n}");
    tolerates("%e = log %t\n%v = sub %e, %t");
    // Each sum reads the last one twice: as a tree there would be 2^40 of them.
    let sums: String = (0..40).map(|i| format!("%s{} = add %s{i}, %s{i}\n", i + 1)).collect();
    tolerates(&format!("%e = sin %t\n%s0 = abs %e\n{sums}%v = mul %s40, %t"));
    tolerates("%e = gelu %t\n%v = mul %e, %t");
    tolerates("%e = exp %t\n%s = add %e, %one\n%r = sqrt %s\n%q = div %s, %r\n%v = mul %q, %e");
    // At most 89 times what the argument is off by, and that is one step.
    tolerates("%q = div %t, %one\n%e = exp %q\n%v = sigmoid %q");
    tolerates("%q = rsqrt %t\n%v = exp2 %q");
    // What a loop carries has no sign if no iteration gives it one.
    tolerates("%v = loop %j in %from..%to carry (%c = %one) {\n%e = exp %t\n%m = add %c, %e\nyield %m\n}");
    // 32 times 32 steps.
    let product = |n: usize| {
        let factors: String = (0..n).map(|i| format!("%e{i} = exp %t\n%p{} = mul %p{i}, %e{i}\n", i + 1)).collect();
        format!("%p0 = abs %one\n{factors}%v = neg %p{n}")
    };
    tolerates(&product(32));
    assert_eq!(approximate(&product(33)), [false; 33]);
    // In turn the last of each that comes to too much.
    assert_eq!(approximate(&product(66)), [false; 66]);
}

#[test]
fn what_magnifies_an_error() {
    refuses("%s = sin %t\n%v = add %s, %one");
    assert_eq!(approximate("%s = cos %t\n%v = exp %s"), [false, true]);
    refuses("%e = tanh %t\n%b = lt %e, %t\n%v = select %b, %e, %t");
    refuses("%e = gelu %t\n%v = add %e, %t");
    // At -10 the derivative is a hundred times the value over the argument.
    refuses("%s = sin %t\n%v = gelu %s");
    // Far from 0, 1 + tanh has a large derivative beside its value.
    refuses("%e = tanh %t\n%f = tanh %e\n%v = add %one, %f");
    // Eight steps.
    refuses("%a = tanh %t\n%b = mul %a, %a\n%c = mul %b, %b\n%v = mul %c, %c");
    refuses("%v = loop %j in %from..%to carry (%c = %t) {\n%e = tanh %t\n%m = mul %c, %e\nyield %m\n}");
    refuses("%e = tanh %t\n%v = loop %j in %from..%to carry (%c = %e) {\n%m = mul %c, %c\nyield %m\n}");
}

#[test]
fn what_magnifies_roundings() {
    // Differences of what is nearly equal.
    refuses("%e = exp %t\n%f = exp2 %t\n%q = div %e, %f\n%v = sub %q, %one");
    refuses("%q = div %t, %one\n%v = sub %q, %one");
    refuses("%a = sigmoid %t\n%v = sub %one, %a");
    refuses("%a = sqrt %t\n%b = rsqrt %t\n%v = sub %a, %b");
    refuses("%e = exp %t\n%a = add %e, %t\n%v = abs %a");
    refuses("%e = exp %t\n%m = mul %e, %t\n%g = reduce sum %m axes [0]\n%v = broadcast %g : f32[16]");
    // A logarithm near 1, a sine near its roots.
    refuses("%e = exp %t\n%v = log %e");
    assert_eq!(approximate("%q = div %t, %one\n%v = sin %q"), [false, false]);
    // An exponential of an exponential, of whose arguments the absolute error counts.
    assert_eq!(approximate("%e = exp %t\n%v = exp %e"), [false, true]);
    assert_eq!(approximate("%e = sigmoid %t\n%v = exp2 %e"), [false, true]);
    // A product over iterations.
    for f in ["exp", "exp2", "sigmoid", "sqrt", "rsqrt"] {
        refuses(&format!("%v = loop %j in %from..%to carry (%c = %t) {{\n%e = {f} %t\n%m = mul %c, %e\nyield %m\n}}"));
    }
    refuses("%v = loop %j in %from..%to carry (%c = %t) {\n%m = div %c, %t\nyield %m\n}");
    // One that moves through two carried values before it grows.
    refuses(
        "%v, %u = loop %j in %from..%to carry (%c = %t, %d = %t) {\n%e = exp2 %t\n%m = mul %c, %e\nyield %d, %m\n}",
    );
    // What is carried may have a sign after the first iteration.
    refuses("%v = loop %j in %from..%to carry (%c = %one) {\n%e = exp %t\n%m = add %c, %e\n%k = neg %m\nyield %k\n}");
}

#[test]
fn a_scalar_argument_takes_up_a_few_steps() {
    // As the least number under a root it is not negative, but nothing says so.
    let norm = |f: &str| {
        format!(
            "%s = mul %t, %t\n%g = reduce sum %s axes [0]\n%m = {f} %g\n%by = scalar %s0\n%eps = broadcast %by : f32[1]\n\
             %a = add %m, %eps\n%r = rsqrt %a\n%b = broadcast %r : f32[16]\n%v = mul %t, %b"
        )
    };
    tolerates(&norm("sqrt"));
    assert_eq!(approximate(&norm("exp")), [false, true]);
}

#[test]
fn what_is_rounded_for_a_product_takes_up_errors() {
    let online = |p: &str, top: &str| {
        format!(
            "%nil = splat 0 : f32[16, 16]\n%v2, %l2, %m2 = loop %j in %from..%to carry (%acc = %nil, %l = %nil, %top = %nil) {{\n\
             %y2 = broadcast %t : f32[16, 16]\n%high = max %top, %y2\n%d = sub %y2, %high\n%p = exp2 %d\n\
             %lost = sub {top}, %high\n%kept = exp2 %lost\n%ls = mul %l, %kept\n%ln = add %ls, %p\n\
             %p16 = cast %p : f16[16, 16]\n%o3 = mul %acc, %kept\n%o2 = dot {p}, %p16 acc %o3\nyield %o2, %ln, %high\n}}\n\
             %q = div %v2, %l2\n%f = reduce max %q axes [0]\n%g = reshape %f : f32[16]\n%v = abs %g"
        )
    };
    let other = "%w16 = cast %y2 : f16[16, 16]\n";
    let with = |body: String| body.replace("%p16 = cast", &format!("{other}%p16 = cast"));
    tolerates(&with(online("%w16", "%top")));
    // A factor that does not fall off grows in each iteration.
    assert!(!approximate(&with(online("%w16", "%nil")))[1]);
    // One that is read twice cannot be off in two ways.
    assert!(!approximate(&online("%p16", "%top"))[1]);
}

#[test]
fn a_logarithm_of_a_softmax_has_the_absolute_error_of_its_sum() {
    let of_sum = |n: u32, f: &str, from: &str, then: &str| {
        format!(
            "%x2 = broadcast %t : f32[{n}, 16]\n%m = reduce max %x2 axes [0]\n%b = broadcast {from} : f32[{n}, 16]\n\
             %d = sub %x2, %b\n%e = {f} %d\n%s = reduce sum %e axes [0]\n{then}\n%r = reshape %l : f32[16]\n%v = add %r, %t"
        )
    };
    let log_sum_exp = |n, f, from| of_sum(n, f, from, "%l = log %s");
    // However many terms there are, and however many of them are 0.
    for n in [2, 512] {
        tolerates(&log_sum_exp(n, "exp", "%m"));
        tolerates(&log_sum_exp(n, "exp2", "%m"));
        refuses(&log_sum_exp(n, "exp", "%one"));
        refuses(&log_sum_exp(n, "sigmoid", "%m"));
        // The sum itself is off by what its terms are.
        refuses(&of_sum(n, "exp", "%m", "%u = splat 1.0 : f32[1, 16]\n%l = sub %s, %u"));
        tolerates(
            &of_sum(n, "exp", "%m", "%u = splat 1.0 : f32[1, 16]\n%l = div %u, %s").replace("add %r, %t", "mul %r, %t"),
        );
    }
    // A scale and a shift keep an absolute error; an inverse, a function and another error do not.
    let then = |then: &str| of_sum(16, "exp2", "%m", &format!("%k = log %s\n{then}"));
    tolerates(&then("%hh = add %k, %k0\n%l = mul %hh, %m").replace("%k = log", "%k0 = abs %m\n%k = log"));
    tolerates(&then("%c = splat 2.0 : f32[1, 16]\n%q = max %k, %c\n%l = neg %q"));
    for what in ["%l = div %m, %k", "%l = exp %k", "%l = mul %k, %k", "%l = add %k, %k", "%l = sqrt %k", "%l = log %k"]
    {
        let verdicts = approximate(&then(what));
        assert!(!verdicts[0], "{what}");
    }
    let verdicts = approximate(&then("%o = sigmoid %m\n%l = max %k, %o"));
    assert!(!verdicts[0] && !verdicts[1], "{verdicts:?}");
    // So is what is rounded to 16 bits.
    assert!(!approximate(&then("%hh = cast %k : f16[1, 16]\n%g = cast %hh : f32[1, 16]\n%l = div %m, %g"))[0]);
}

#[test]
fn gelu_far_below_zero_is_a_factor_alone() {
    for f in ["gelu", "gelu_slope"] {
        let of = |then: &str| format!("%g = {f} %t\n{then}");
        for then in [
            "%v = mul %g, %t",
            "%v = mul %g, %g",
            "%v = div %g, %t",
            "%v = max %g, %one",
            "%m = mul %g, %t\n%v = neg %m",
            "%a = abs %g\n%m = reduce max %a axes [0]\n%v = broadcast %m : f32[16]",
        ] {
            assert!(approximate(&of(then))[0], "{f}: {then}");
        }
        for then in [
            "%v = div %one, %g",
            "%u = mul %t, %t\n%hh = mul %g, %u\n%v = div %g, %hh",
            "%a = abs %g\n%v = sqrt %a",
            "%a = mul %g, %g\n%v = rsqrt %a",
            "%v = exp %g",
            "%v = tanh %g",
            "%a = abs %g\n%v = add %a, %one",
            "%a = abs %g\n%s = reduce sum %a axes [0]\n%v = broadcast %s : f32[16]",
            "%m = mul %g, %g\n%s = reduce sum %m axes [0]\n%r = rsqrt %s\n%b = broadcast %r : f32[16]\n%v = mul %g, %b",
            // A bf16 may be smaller than the error is.
            "%hh = cast %g : bf16[16]\n%a = cast %hh : f32[16]\n%v = div %one, %a",
        ] {
            let verdicts = approximate(&of(then));
            assert!(!verdicts[0], "{f}: {then}");
            // What meets it is right about its own part.
            assert!(verdicts[1..].iter().all(|&v| v), "{f}: {then}");
        }
    }
    tolerates("%g = gelu %t\n%hh = cast %g : f16[16]\n%a = cast %hh : f32[16]\n%v = div %one, %a");
    // Products of matrices take it as it was rounded.
    let product = |then: &str| {
        format!(
            "%g = gelu %t\n%wide = broadcast %g : f32[16, 16]\n%hh = cast %wide : bf16[16, 16]\n%yy = broadcast %t : f32[16, 16]\n\
             %x2 = cast %yy : bf16[16, 16]\n{then}\n%f = reduce max %d axes [0]\n%v = reshape %f : f32[16]"
        )
    };
    tolerates(&product("%d = dot %hh, %x2"));
    // It is no small error of what is cast beside it.
    assert!(!approximate(&product("%c = dot %x2, %x2\n%e = mul %c, %wide\n%d = dot %x2, %x2 acc %e"))[0]);
}

/// A value that a loop uses in each iteration is one number, whose error is the same each time.
#[test]
fn what_is_rounded_outside_of_a_loop_takes_up_nothing() {
    let sum = |before: &str, cast: &str| {
        format!(
            "%nil = splat 0 : f32[16, 16]\n%y0 = broadcast %t : f32[16, 16]\n%wide = cast %y0 : f16[16, 16]\n{before}\n\
             %v2 = loop %j in %from..%to carry (%acc = %nil) {{\n%jf = cast %j : f32\n%b = broadcast %jf : f32[16, 16]\n\
             %s = sin %b\n{cast}\n%m = mul %d, %s\n%o = add %acc, %m\nyield %o\n}}\n\
             %f = reduce max %v2 axes [0]\n%v = reshape %f : f32[16]"
        )
    };
    let moving = "%yy = mul %y0, %b\n%p = cast %yy : f16[16, 16]\n%d = dot %p, %wide";
    tolerates(&sum("", moving));
    let still = "%p = cast %yy : f16[16, 16]";
    refuses(&sum(&format!("%yy = mul %y0, %y0\n{still}\n%d = dot %p, %wide"), ""));
    refuses(&sum(&format!("%yy = mul %y0, %y0\n{still}"), "%d = dot %p, %wide"));
    refuses(&sum("%yy = mul %y0, %y0", &format!("{still}\n%d = dot %p, %wide")));
    // Nor does a number that is cast twice.
    let twice = "%q = cast %yy : f16[16, 16]\n%e = dot %q, %wide\n%u = mul %e, %s\n%acc2 = add %acc, %u";
    refuses(&sum("", &format!("{moving}\n{twice}")).replace("add %acc, %m", "add %acc2, %m"));
}

#[test]
fn a_row_is_not_above_a_column() {
    let product = |top: &str| {
        format!(
            "%c1 = splat 1.0 : f32[16, 16]\n%least = splat -9.0 : f32[16, 16]\n\
             %v2 = loop %j in %from..%to carry (%c = %c1) {{\n%row = broadcast %t : f32[16, 16]\n\
             %t2 = reshape %t : f32[16, 1]\n%column = broadcast %t2 : f32[16, 16]\n%across = reduce max %row axes [1]\n\
             %down = reduce max %row axes [0]\n%of_row = broadcast %across : f32[16, 16]\n\
             %of_column = broadcast %down : f32[16, 16]\n%same = transpose %column\n\
             %high = max {top}, %least\n%d = sub %row, %high\n%e = exp %d\n%m = mul %c, %e\nyield %m\n}}\n\
             %f = reduce max %v2 axes [0]\n%v = reshape %f : f32[16]"
        )
    };
    for top in ["%row", "%of_row", "%of_column", "%same"] {
        tolerates(&product(top));
    }
    refuses(&product("%column"));
    // The greatest of another row, and of a row at the place of a column.
    let turned = |top: &str| product("%turned").replace("%high =", &format!("%turned = transpose {top}\n%high ="));
    refuses(&turned("%of_column"));
    tolerates(&turned("%of_row"));
}

/// Exponents of a product add up to less than 254 binades only if nothing makes it large again in between.
#[test]
fn what_decays_is_not_scaled_in_between() {
    let product = |then: &str| {
        format!(
            "%v = loop %j in %from..%to carry (%c = %one) {{\n%hh = max %t, %one\n%d = sub %t, %hh\n%e = exp %d\n{then}\nyield %m\n}}"
        )
    };
    tolerates(&product("%m = mul %c, %e"));
    for then in [
        "%p = mul %c, %e\n%m = mul %p, %t",
        "%p = mul %c, %t\n%m = mul %p, %e",
        "%p = mul %c, %e\n%m = div %p, %t",
        "%p = mul %e, %t\n%m = mul %c, %p",
        // Added to itself, and spread and added up.
        "%p = mul %c, %e\n%m = add %p, %p",
        "%a = abs %c\n%p = mul %a, %e\n%q = abs %p\n%m = add %p, %q",
        "%a = abs %c\n%p = mul %a, %e\n%s = reduce sum %p axes [0]\n%m = broadcast %s : f32[16]",
    ] {
        let verdicts = approximate(&product(then));
        assert!(!verdicts[0], "{then}");
    }
    // Terms that each iteration adds are no more than there are iterations.
    tolerates(&product("%p = mul %c, %e\n%q = abs %p\n%m = add %q, %one"));
    tolerates(&product("%u = abs %c\n%p = mul %u, %e\n%wide = abs %t\n%q = mul %wide, %e\n%m = add %p, %q"));
}

#[test]
fn a_maximum_that_is_replaced_where_it_is_infinite_is_one() {
    let log_sum_exp = |least: &str, instead: &str| {
        format!(
            "%x2 = broadcast %t : f32[512, 16]\n%m = reduce max %x2 axes [0]\n%a1 = splat {least} : f32[1, 16]\n\
             %a2 = eq %m, %a1\n%a3 = splat {instead} : f32[1, 16]\n%a4 = select %a2, %a3, %m\n\
             %b = broadcast %a4 : f32[512, 16]\n%d = sub %x2, %b\n%e = exp %d\n%s = reduce sum %e axes [0]\n%l = log %s\n\
             %r = reshape %l : f32[16]\n%v = add %r, %t"
        )
    };
    tolerates(&log_sum_exp("-inf", "0.0"));
    // Another number is no bound on what it is the maximum of.
    refuses(&log_sum_exp("0.0", "-1.0"));
    refuses(&log_sum_exp("-inf", "-inf"));
}

#[test]
fn many_functions_take_linear_time() {
    let time = |n: usize| {
        let chain: String = (0..n).map(|i| format!("%a{} = tanh %a{i}\n", i + 1)).collect();
        let body = format!("%a0 = abs %t\n{chain}%v = neg %a{n}");
        let start = std::time::Instant::now();
        let count = judged(&body).len();
        assert_eq!(count, n);
        start.elapsed()
    };
    // Sixteen times as many take sixteen times as long, and far less than 256 times.
    let (few, many) = (time(500).max(std::time::Duration::from_millis(2)), time(8000));
    assert!(many < few * 100, "{few:?} and {many:?}");
}

#[test]
fn functions_are_judged_apart() {
    // The first cancels; the second is only a factor, the third a factor of what cancels.
    let body = "%a = tanh %t\n%b = tanh %t\n%c = tanh %t\n%s = sub %t, %a\n%p = mul %s, %b\n%q = mul %p, %t\n\
                %d = mul %c, %t\n%r = sub %d, %t\n%v = mul %q, %r";
    assert_eq!(approximate(body), [false, true, false]);
}

#[test]
fn a_fault_spares_what_it_does_not_depend_on() {
    // The product has six steps, but for those of the terms of differences, which are precise, four.
    let body = "%a = tanh %t\n%b = erf %t\n%d = sub %a, %t\n%e = sub %b, %t\n%f = tanh %t\n%g = mul %f, %f\n\
                %k = mul %g, %g\n%m = mul %a, %b\n%o = mul %d, %e\n%p = mul %m, %k\n%v = mul %p, %o";
    assert_eq!(approximate(body), [false, false, true]);
    // What is precise hands on the step of its argument: 1 + erf magnifies that.
    let body = "%a = tanh %t\n%b = erf %a\n%w = abs %b\n%s = sin %t\n%v = add %s, %t";
    assert_eq!(judged(body)[..2], [Verdict::Reaches(Param::from_u32(3)); 2]);
    // A rounding to 16 bits ends a step, and so a fault behind it.
    let body = "%a = tanh %t\n%b = cast %a : f16[16]\n%c = cast %b : f32[16]\n%d = tanh %c\n%v = sub %c, %d";
    assert_eq!(approximate(body), [true, false]);
}

#[test]
fn what_leaps_is_given_what_is_exact() {
    refuses("%q = div %t, %one\n%v = floor %q");
    refuses("%q = sqrt %t\n%b = lt %q, %one\n%v = select %b, %t, %one");
    assert_eq!(approximate("%q = div %t, %one\n%r = exp %t\n%f = floor %q\n%v = mul %f, %r"), [false, true]);
    // A square of integers may be negative.
    refuses(
        "%k = cast %t : i32[16]\n%m = mul %k, %k\n%f = cast %m : f32[16]\n%s = sin %t\n%a = abs %s\n%v = add %a, %f",
    );
}

#[test]
fn what_reaches_a_wide_output() {
    assert_eq!(approximate("%a = erf %t\n%v = mul %a, %t\n%b = erf %t\n%w = mul %b, %t"), [true, false]);
    assert_eq!(approximate("%a = exp %t\n%v = div %a, %t\n%w = add %v, %t"), [false, false]);
    let chosen = "%a = exp %t\n%v = mul %a, %a\n%b = exp %t\n%c = lt %b, %one\n%w = select %c, %t, %one";
    assert_eq!(approximate(chosen), [true, false]);
}

#[test]
fn a_rounding_hides_from_tensors_and_not_from_discontinuous_operations() {
    let rounded = "%a = exp %t\n%v = mul %a, %a\n%b = exp %t\n%c = cast %b : f16[16]\n%w = cast %c : f32[16]";
    assert_eq!(approximate(rounded), [true, true]);
    // The part that is not rounded shows.
    let both = "%b = exp %t\n%c = cast %b : f16[16]\n%d = cast %c : f32[16]\n%w = sub %b, %d\n%v = mul %t, %t";
    assert_eq!(approximate(both), [false]);
    // On the way to the rounding nothing may magnify an error.
    let magnified = "%a = tanh %t\n%b = sub %a, %t\n%c = cast %b : f16[16]\n%w = cast %c : f32[16]\n%v = mul %t, %t";
    assert_eq!(approximate(magnified), [false]);
    let discontinuous =
        "%a = exp %t\n%b = cast %a : f16[16]\n%c = cast %b : f32[16]\n%f = floor %c\n%v = mul %t, %t\n%w = mul %f, %t";
    assert_eq!(approximate(discontinuous), [false]);
}

#[test]
fn what_reaches_it_by_memory_or_loops() {
    // Of what a loop carries, each for itself.
    let carried = "%w, %v = loop %j in %from..%to carry (%c = %t, %d = %t) {\n%e = exp %t\n%f = exp %t\n%g = max %e, %c\n%o = max %f, %d\nyield %g, %o\n}";
    assert_eq!(approximate(carried), [false, true]);
    let crossed = "%w, %v = loop %j in %from..%to carry (%c = %t, %d = %t) {\n%e = exp %t\n%f = exp %t\n%g = max %e, %c\n%o = max %f, %d\nyield %o, %g\n}";
    assert_eq!(approximate(crossed), [false, false]);
    let bounds = "%a = exp %t\n%b = max %a, %one\n%g = reduce max %b axes [0]\n%s = reshape %g : f32[]\n%o = cast %s : i32\n\
                  %v = exp %t\n%w = loop %j in %from..%o carry (%c = %t) {\n%e = add %c, %c\nyield %e\n}";
    assert_eq!(approximate(bounds), [false, true]);
    let stored = "%e = exp %t\n%f = cast %e : f16[16]\nstore %i[%n : 16], %f\n%v = exp %t\n%g = load %i[%n : 16]\n\
                  %w = cast %g : f32[16]";
    assert_eq!(approximate(stored), [true, true]);
    let wide = "%e = exp %t\n%f = add %e, %t\nstore %z[%n : 16], %f\n%v = exp %t\n%w = load %z[%n : 16]";
    assert_eq!(approximate(wide), [false, true]);
    let often = "%a = exp %t\n%g = reduce max %a axes [0]\n%s = reshape %g : f32[]\n%o = cast %s : i32\n%v = exp %t\n\
                 loop %j in %from..%o {\nstore %z[%n : 16], %t\nyield\n}";
    assert_eq!(approximate(often), [false, true]);
}

/// A kernel of random functions, sums and products: the operation of each value and its operands.
struct RandomKernel {
    text: String,
    nodes: Vec<(&'static str, usize, usize)>,
}

/// A small generator of numbers.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

impl RandomKernel {
    const FUNCTIONS: [&str; 6] = ["exp", "exp2", "sigmoid", "sqrt", "rsqrt", "tanh"];

    /// Value 0 is the tile, value 1 is one; the last one is stored.
    fn random(state: &mut u64) -> RandomKernel {
        let mut nodes = vec![("t", 0, 0), ("one", 0, 0)];
        for _ in 0..2 + next(state) % 8 {
            let n = nodes.len() as u64;
            let (a, b) = ((n - 1 - next(state) % n.min(3)) as usize, (next(state) % n) as usize);
            let op = match next(state) % 12 {
                i @ 0..6 => RandomKernel::FUNCTIONS[i as usize],
                i => ["mul", "div", "add", "sub", "abs", "max"][i as usize - 6],
            };
            nodes.push((op, a, b));
        }
        let mut text = "%v0 = max %t, %t\n%v1 = abs %one\n".to_owned();
        for (i, &(op, a, b)) in nodes.iter().enumerate().skip(2) {
            let unary = RandomKernel::FUNCTIONS.contains(&op) || op == "abs";
            text += &if unary { format!("%v{i} = {op} %v{a}\n") } else { format!("%v{i} = {op} %v{a}, %v{b}\n") };
        }
        text += &format!("%v = neg %v{}", nodes.len() - 1);
        RandomKernel { text, nodes }
    }

    /// The result in f64. Each function is off by as many steps as `off` gives for the number of its value.
    fn value(&self, t: f64, off: impl Fn(usize) -> f64) -> f64 {
        let mut v: Vec<f64> = vec![t, 1.0];
        for (i, &(op, a, b)) in self.nodes.iter().enumerate().skip(2) {
            let (a, b) = (v[a], v[b]);
            let (y, steps) = match op {
                "exp" => (a.exp(), 32.0),
                "exp2" => (a.exp2(), 1.0),
                "sigmoid" => (1.0 / (1.0 + (-a).exp()), 32.0),
                "sqrt" => (a.sqrt(), 1.0),
                "rsqrt" => (1.0 / a.sqrt(), 1.0),
                "tanh" => (a.tanh(), 256.0),
                "mul" => (a * b, 0.0),
                "div" => (a / b, 1.0),
                "add" => (a + b, 0.0),
                "sub" => (a - b, 0.0),
                "max" => (a.max(b), 0.0),
                _ => (a.abs(), 0.0),
            };
            // Past the range of f32 nothing is promised.
            let in_range = y == 0.0 || (2f64.powi(-126)..2f64.powi(127)).contains(&y.abs());
            v.push(if in_range { y * (1.0 + off(i) * steps * 2f64.powi(-22)) } else { f64::NAN });
        }
        v.last().copied().unwrap_or(f64::NAN)
    }
}

/// Checks the promise on random trees. If every approximate function is off by as much as it may be, to either side, results
/// are within 2^-12. If all functions were approximate, they would not be.
#[test]
fn random_trees_keep_the_promise() {
    let mut state = 11;
    let (mut granted, mut refused, mut judged_results, mut broken) = (0, 0, 0, 0);
    for _ in 0..3000 {
        let tree = RandomKernel::random(&mut state);
        let k = kernel(&tree.text);
        let approximations = Approximations::of(&k, &Uses::of(&k));
        // Functions and quotients in order.
        let mut verdicts = vec![None; tree.nodes.len()];
        let functions = (2..tree.nodes.len())
            .filter(|&i| RandomKernel::FUNCTIONS.contains(&tree.nodes[i].0) || tree.nodes[i].0 == "div");
        let insts = k.insts.iter().filter(|(_, op)| {
            matches!(op, Op::Unary(f, _) if RandomKernel::FUNCTIONS.contains(&f.name()))
                || matches!(op, Op::Binary(atlas_dsl::op::BinaryOp::Div, ..))
        });
        for (i, (inst, _)) in functions.zip(insts) {
            verdicts[i] = approximations.verdict(inst);
            match verdicts[i] {
                Some(Verdict::Approximate) => granted += 1,
                Some(_) => refused += 1,
                None => {}
            }
        }
        for trial in 0..40u64 {
            let t = f64::from(((next(&mut state) % 4000) as f32 - 2000.0) / 211.0);
            let exact = tree.value(t, |_| 0.0);
            let side = |i: usize| match trial % 4 {
                0 => 1.0,
                1 => -1.0,
                _ => {
                    if (trial / 4 * 0x9e37 + i as u64 * 0x79b9) >> 3 & 1 == 0 {
                        1.0
                    } else {
                        -1.0
                    }
                }
            };
            let far = |y: f64| (y - exact).abs() > exact.abs() * 2f64.powi(-12) * 1.001;
            let found = tree.value(t, |i| if verdicts[i] == Some(Verdict::Approximate) { side(i) } else { 0.0 });
            if !exact.is_finite() || !found.is_finite() {
                continue;
            }
            judged_results += 1;
            assert!(!far(found), "{found:e} for {exact:e} at {t}:\n{}\n{verdicts:?}", tree.text);
            broken += usize::from(far(tree.value(t, side)));
        }
    }
    assert!(granted > 2000 && refused > 1000 && judged_results > 10_000, "{granted} {refused} {judged_results}");
    assert!(broken > 100, "{broken}: were all functions approximate, nobody would notice");
}
