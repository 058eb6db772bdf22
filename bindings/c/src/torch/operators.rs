//! The operators: what they take, what they give, and which functions of the library they call.

use super::call::{Arg, Made, Operator, OperatorCall, Shape, Work};
use super::omega;
use super::values::{GivenValue, Tensor, tuple};
use super::views::View;
use crate::status::{Failure, Result};

use Arg::{As, Made as Out, MadeFlat as OutFlat, MadeRows as OutRows, Ones, Rows};

const fn like(of: &'static str) -> Made {
    Made { of, shape: Shape::Same, is_f32: false }
}

const fn shaped(of: &'static str, shape: Shape) -> Made {
    Made { of, shape, is_f32: false }
}

const fn f32(made: Made) -> Made {
    Made { is_f32: true, ..made }
}

macro_rules! tokens {
    () => {
        "Tensor q, Tensor k, Tensor v, Tensor rq, Tensor rk, Tensor alpha, Tensor theta, Tensor eta, Tensor gamma"
    };
}

macro_rules! rule {
    () => {
        "str memory, str step, int chunk, bool before, float scale, bool predicts, float eps"
    };
}

macro_rules! memory {
    () => {
        "Tensor[] weights, Tensor[] momenta, Tensor? norm"
    };
}

/// How many there are.
pub(super) const COUNT: usize = 17;

/// All operators.
pub(super) static OPERATORS: [Operator; COUNT] = [
    Operator {
        schema: "softmax(Tensor x) -> Tensor",
        work: Work::Steps(&[like("x")], &[("softmax", &[Rows("x"), OutRows(0)])]),
    },
    Operator {
        schema: "log_sum_exp(Tensor x) -> Tensor",
        work: Work::Steps(&[shaped("x", Shape::WithoutLast)], &[("log_sum_exp", &[Rows("x"), OutFlat(0)])]),
    },
    Operator {
        schema: "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor",
        work: Work::Steps(&[like("x")], &[("rms_norm", &[Rows("x"), As("weight"), OutRows(0), As("eps")])]),
    },
    Operator {
        schema: "rms_norm_backward(Tensor dy, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
        work: Work::Steps(
            &[like("x"), f32(like("weight"))],
            &[("RMS_NORM_GRAD", &[Rows("x"), As("weight"), Rows("dy"), As("eps"), OutRows(0), Out(1)])],
        ),
    },
    Operator {
        schema: "rotary(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor",
        work: Work::Code(rotary),
    },
    Operator { schema: "poly_features(Tensor x, float[] coefficients) -> Tensor", work: Work::Code(poly_features) },
    Operator {
        schema: "taylor2_features(Tensor x) -> Tensor",
        work: Work::Steps(&[shaped("x", Shape::Taylor2)], &[("taylor2_features", &[Rows("x"), OutRows(0)])]),
    },
    Operator {
        schema: "windowed_attention(Tensor q, Tensor k, Tensor v, Tensor pk, Tensor pv, Tensor first, int window, float scale) -> (Tensor, Tensor)",
        work: Work::Steps(
            &[like("q"), f32(shaped("q", Shape::Axes(&[0, 2, 1])))],
            &[(
                "windowed_attention",
                &[
                    As("q"),
                    As("k"),
                    As("v"),
                    As("pk"),
                    As("pv"),
                    As("first"),
                    As("window"),
                    As("scale"),
                    Out(0),
                    Out(1),
                ],
            )],
        ),
    },
    Operator {
        schema: "windowed_attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor pk, Tensor pv, Tensor first, Tensor o, Tensor lse, int window, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        work: Work::Steps(
            &[like("q"), like("k"), like("v"), f32(like("pk")), f32(like("pv"))],
            &[(
                "WINDOWED_ATTENTION_GRAD",
                &[
                    As("q"),
                    As("k"),
                    As("v"),
                    As("pk"),
                    As("pv"),
                    As("first"),
                    As("window"),
                    As("scale"),
                    As("o"),
                    As("lse"),
                    As("do"),
                    Out(0),
                    Out(1),
                    Out(2),
                    Out(3),
                    Out(4),
                ],
            )],
        ),
    },
    Operator {
        schema: "attention_decode(Tensor q, Tensor k, Tensor v, Tensor tokens, float scale, int parts) -> (Tensor, Tensor)",
        work: Work::Steps(
            &[like("q"), f32(shaped("q", Shape::WithoutLast))],
            &[(
                "ATTENTION_DECODE",
                &[As("q"), As("k"), As("v"), As("tokens"), As("scale"), Out(0), Out(1), As("parts")],
            )],
        ),
    },
    Operator {
        schema: "memory_read(Tensor x, Tensor w2, Tensor w1, Tensor r) -> Tensor",
        work: Work::Steps(&[like("r")], &[("memory_read", &[As("x"), As("w2"), As("w1"), As("r"), Out(0)])]),
    },
    Operator {
        schema: "memory_read_backward(Tensor dy, Tensor x, Tensor w2, Tensor w1) -> (Tensor, Tensor, Tensor)",
        work: Work::Steps(
            &[like("x"), f32(like("w2")), f32(like("w1"))],
            &[
                ("memory_weight_grads", &[As("x"), As("w2"), As("w1"), Ones("x"), As("dy"), Out(1), Out(2)]),
                ("memory_input_grad", &[As("x"), As("w2"), As("w1"), Ones("x"), As("dy"), Out(0)]),
            ],
        ),
    },
    Operator {
        schema: concat!("omega(", tokens!(), ", ", memory!(), ", ", rule!(), ") -> (Tensor, Tensor[], Tensor[])"),
        work: Work::Code(omega::omega),
    },
    Operator {
        schema: concat!(
            "omega_training(",
            tokens!(),
            ", ",
            memory!(),
            ", ",
            rule!(),
            ", int segment) -> (Tensor, Tensor[], Tensor[], Tensor[])"
        ),
        work: Work::Code(omega::training),
    },
    Operator {
        schema: concat!(
            "omega_training_backward(Tensor dy, Tensor[] last, ",
            tokens!(),
            ", Tensor? norm, Tensor[] kept, ",
            rule!(),
            ", int segment) -> Tensor[]"
        ),
        work: Work::Code(omega::training_backward),
    },
    Operator {
        schema: concat!(
            "omega_packed(",
            tokens!(),
            ", Tensor starts, ",
            memory!(),
            ", ",
            rule!(),
            ", int longest) -> (Tensor, Tensor[], Tensor[])"
        ),
        work: Work::Code(omega::packed),
    },
    Operator {
        schema: "newton_schulz(Tensor g, str dtype, float[] steps, float stretch, float eps, bool eps_is_least, int restart) -> Tensor",
        work: Work::Code(newton_schulz),
    },
];

/// `x` `[.., N, H, 2 D]`, and angles that are repeated to `[.., N, D]`.
fn rotary(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let (x, cos, sin) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let is_interleaved = call.whole(3)? != 0;
    let sizes = x.sizes()?;
    let (&[ref tokens @ .., heads, width], true) = (sizes, sizes.len() >= 3 && sizes[sizes.len() - 1] % 2 == 0) else {
        let found = tuple(sizes);
        let text = format_args!("`x` of `rotary` has dims [.., N, H, 2 D], but one of shape {found} is given");
        return Err(Failure::coded(603, text));
    };
    let (count, pairs) = (tokens.iter().product(), width / 2);
    let shape = if is_interleaved { [count, heads, pairs, 2] } else { [count, heads, 2, pairs] };
    let repeated: Vec<i64> = tokens.iter().copied().chain([pairs]).collect();
    let angles = |of| View::broadcast(of, &repeated, &[count, pairs]);
    let (Some(by_cos), Some(by_sin)) = (angles(cos)?, angles(sin)?) else {
        let found = format!("{} and {}", tuple(cos.sizes()?), tuple(sin.sizes()?));
        let text =
            format_args!("`cos` and `sin` of `rotary` have shapes {found}; they are broadcast to {}", tuple(&repeated));
        return Err(Failure::coded(604, text));
    };
    let y = call.like(x)?;
    let name = if is_interleaved { "rotary_interleaved" } else { "rotary_halves" };
    let (x, to) = (View::reshaped(x, &shape)?, View::reshaped(&y, &shape)?);
    call.launch(name, [x, by_cos, by_sin, to].map(Into::into))?;
    Ok(vec![GivenValue::Tensor(y)])
}

/// One to four coefficients, each count with a kernel of its own.
fn poly_features(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let (x, coefficients) = (call.tensor(0)?, call.reals(1)?);
    let name = match coefficients.len() {
        1 => "poly1",
        2 => "poly2",
        3 => "poly3",
        4 => "poly4",
        found => {
            let text = format_args!("`poly_features` takes 1 to 4 coefficients, and is given {found}");
            return Err(Failure::coded(601, text));
        }
    };
    let y = call.like(x)?;
    let tensors = [View::rows(x)?, View::rows(&y)?].map(Into::into);
    call.launch(name, tensors.into_iter().chain(coefficients.iter().map(|&a| a.into())))?;
    Ok(vec![GivenValue::Tensor(y)])
}

/// The mean eigenvalue before each step, of matrices of Gaussian numbers: rounding is least about it.
const CENTRES: [f64; 4] = [0.0, 0.25, 1.0, 0.75];

fn newton_schulz(call: &OperatorCall<'_>) -> Result<Vec<GivenValue>> {
    let (g, steps) = (call.tensor(0)?, call.reals(2)?);
    if !steps.len().is_multiple_of(3) {
        let found = steps.len();
        let text = format_args!("each step of `newton_schulz` has three coefficients, and {found} numbers are given");
        return Err(Failure::coded(601, text));
    }
    let out: Tensor = call.made(g, g.sizes()?, Some(super::values::dtype_named(call.text(1)?)?))?;
    let numbers = [call.real(3)?.into(), call.real(4)?.into(), call.whole(5)?.into(), call.whole(6)?.into()];
    let each = steps.chunks_exact(3).enumerate().flat_map(|(i, step)| {
        let centre = CENTRES[i.min(CENTRES.len() - 1)];
        [step[0], step[1], step[2], centre].map(Into::into)
    });
    let tensors = [View::of(g)?, View::of(&out)?].map(Into::into);
    call.launch("newton_schulz", tensors.into_iter().chain(numbers).chain(each))?;
    Ok(vec![GivenValue::Tensor(out)])
}

/// The operator of a schema, by its number.
pub(super) fn number_of(schema: &str) -> Option<usize> {
    OPERATORS.iter().position(|of| of.schema == schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::call::read_schema;
    use crate::tvm_ffi::Function;

    /// Every name of the table is one of the operator's parameters, and every function is in the library.
    #[test]
    fn the_table_can_be_read() {
        for of in &OPERATORS {
            let (name, params, _) = read_schema(of.schema).unwrap_or_else(|| panic!("{}", of.schema));
            assert!(params.len() <= 24, "{name}");
            if let Work::Steps(made, steps) = &of.work {
                let is_param = |wanted: &str| params.iter().any(|(_, name)| *name == wanted);
                assert!(made.iter().all(|made| is_param(made.of)), "{name}");
                for (function, args) in *steps {
                    assert!(Function::named(function).is_ok(), "{function}");
                    let is_known = |arg: &Arg| match arg {
                        Arg::As(param) | Arg::Rows(param) | Arg::Ones(param) => is_param(param),
                        Arg::Made(i) | Arg::MadeRows(i) | Arg::MadeFlat(i) => *i < made.len(),
                    };
                    assert!(args.iter().all(is_known), "{name}");
                }
            }
        }
        assert_eq!(number_of("softmax(Tensor x) -> Tensor"), Some(0));
        assert_eq!(number_of("softmax(Tensor y) -> Tensor"), None);
        assert!(read_schema("softmax(Storage x) -> Tensor").is_none());
    }
}
