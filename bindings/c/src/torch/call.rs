//! A call of an operator: what it is given, and the functions that it calls.

use super::shim::{Torch, Word, current_stream, torch};
use super::values::{Axes, GivenValue, Tensor, Value, ValueKind};
use super::views::View;
use crate::dlpack::DLDataType;
use crate::status::{Failure, Result};
use crate::tvm_ffi::{Function, TvmFfiAny};
use smallvec::SmallVec;

/// An operator of `torch.ops.atlas_gpu`.
pub(super) struct Operator {
    /// Its schema, which is that of the Python package.
    pub(super) schema: &'static str,
    pub(super) work: Work,
}

/// What an operator does.
pub(super) enum Work {
    /// It makes tensors, which it gives back, and calls functions with them.
    Steps(&'static [Made], &'static [(&'static str, &'static [Arg])]),
    /// It looks at its arguments first.
    Code(fn(&OperatorCall<'_>) -> Result<Vec<GivenValue>>),
}

/// A tensor that an operator makes.
pub(super) struct Made {
    /// The parameter on whose device it is, and whose element type it has.
    pub(super) of: &'static str,
    pub(super) shape: Shape,
    pub(super) is_f32: bool,
}

/// A shape, from that of a parameter.
pub(super) enum Shape {
    Same,
    WithoutLast,
    Axes(&'static [usize]),
    /// The last axis `d` becomes `1 + d + d d`.
    Taylor2,
}

/// An argument of a function: a parameter by its name, or a tensor that was made by its number.
pub(super) enum Arg {
    As(&'static str),
    Rows(&'static str),
    Made(usize),
    MadeRows(usize),
    MadeFlat(usize),
    /// One number, 1 in f32, in as many places as the first two axes of a parameter have.
    Ones(&'static str),
}

/// An operator whose names are found.
pub(super) struct Plan {
    torch: &'static Torch,
    pub(super) name: &'static str,
    kinds: Vec<ValueKind>,
    /// How many values it gives.
    gives: usize,
    work: Found,
}

/// [`Work`] with the places of parameters for their names.
enum Found {
    Steps(Vec<(usize, &'static Made)>, Vec<Step>),
    Code(fn(&OperatorCall<'_>) -> Result<Vec<GivenValue>>),
}

/// A call of a function.
struct Step(Function, Vec<Place>);

/// Where an argument of a function comes from.
#[derive(Clone, Copy)]
enum Place {
    As(usize),
    Rows(usize),
    Made(usize),
    MadeRows(usize),
    MadeFlat(usize),
    Ones(usize),
}

/// A parameter of a schema: what it takes, and its name.
type SchemaParam = (ValueKind, &'static str);

/// Takes a schema apart: the name, the parameters, and how many values it gives.
pub(super) fn read_schema(schema: &'static str) -> Option<(&'static str, Vec<SchemaParam>, usize)> {
    let (name, rest) = schema.split_once('(')?;
    let (takes, gives) = rest.split_once(") -> ")?;
    let params = takes.split(", ").map(|param| {
        let (kind, name) = param.split_once(' ')?;
        Some((ValueKind::named(kind)?, name))
    });
    Some((name, params.collect::<Option<Vec<_>>>()?, gives.split(", ").count()))
}

impl Plan {
    /// The plan of an operator.
    pub(super) fn new(of: &'static Operator) -> Result<Plan> {
        let wrong = |what: &str| Failure::misuse(format_args!("`{}` has no {what}", of.schema));
        let (name, params, gives) = read_schema(of.schema).ok_or_else(|| wrong("schema that can be read"))?;
        let at = |wanted: &str| params.iter().position(|(_, name)| *name == wanted).ok_or_else(|| wrong(wanted));
        let work = match &of.work {
            Work::Code(code) => Found::Code(*code),
            Work::Steps(made, steps) => {
                let place = |arg: &Arg| {
                    Ok(match arg {
                        Arg::As(name) => Place::As(at(name)?),
                        Arg::Rows(name) => Place::Rows(at(name)?),
                        Arg::Ones(name) => Place::Ones(at(name)?),
                        Arg::Made(i) => Place::Made(*i),
                        Arg::MadeRows(i) => Place::MadeRows(*i),
                        Arg::MadeFlat(i) => Place::MadeFlat(*i),
                    })
                };
                let step = |(name, args): &(&str, &'static [Arg])| {
                    Ok(Step(Function::named(name)?, args.iter().map(place).collect::<Result<_>>()?))
                };
                let made = made.iter().map(|made| Ok((at(made.of)?, made))).collect::<Result<_>>()?;
                Found::Steps(made, steps.iter().map(step).collect::<Result<_>>()?)
            }
        };
        let kinds = params.iter().map(|(kind, _)| *kind).collect();
        Ok(Plan { torch: torch()?, name, kinds, gives, work })
    }

    /// Runs it on the words of a stack, which it takes over, and leaves there what it gives.
    ///
    /// # Safety
    /// The stack is as PyTorch makes it for the operator.
    pub(super) unsafe fn run(&self, stack: *mut Word, takes: u64, gives: u64) -> Result<()> {
        if (takes, gives) != (self.kinds.len() as u64, self.gives as u64) {
            let wanted = format_args!("{} arguments and {} results", self.kinds.len(), self.gives);
            return Err(Failure::misuse(format_args!(
                "`{}` has {wanted}, and is called for {takes} and {gives}",
                self.name
            )));
        }
        let mut values: SmallVec<[Value; 12]> = SmallVec::new();
        for (i, &kind) in self.kinds.iter().enumerate() {
            // SAFETY: the caller's promise.
            values.push(unsafe { Value::take(self.torch, kind, stack.add(i).read()) }?);
        }
        let call = OperatorCall { torch: self.torch, name: self.name, values: &values };
        let put = |i: usize, given: GivenValue| {
            let word = given.into_word(self.torch)?;
            // SAFETY: the stack has room for what the operator gives.
            unsafe { stack.add(i).write(word) };
            Ok(())
        };
        match &self.work {
            Found::Code(code) => code(&call)?.into_iter().enumerate().try_for_each(|(i, given)| put(i, given)),
            Found::Steps(made, steps) => {
                let mut outputs: SmallVec<[Tensor; 5]> = SmallVec::new();
                for (of, made) in made {
                    outputs.push(call.output(*of, made)?);
                }
                for Step(function, places) in steps {
                    call.step(*function, places, &outputs)?;
                }
                outputs.into_iter().enumerate().try_for_each(|(i, tensor)| put(i, GivenValue::Tensor(tensor)))
            }
        }
    }
}

/// A call, whose arguments it holds.
pub(super) struct OperatorCall<'a> {
    torch: &'static Torch,
    name: &'static str,
    values: &'a [Value],
}

/// An argument of a function. A call has few of them, and they live as long as it.
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each tensor of a call")]
pub(super) enum Item<'a> {
    Tensor(View<'a>),
    Real(f64),
    Whole(i64),
}

impl<'a> From<View<'a>> for Item<'a> {
    fn from(view: View<'a>) -> Item<'a> {
        Item::Tensor(view)
    }
}

impl From<f64> for Item<'_> {
    fn from(x: f64) -> Self {
        Item::Real(x)
    }
}

impl From<i64> for Item<'_> {
    fn from(x: i64) -> Self {
        Item::Whole(x)
    }
}

impl<'a> OperatorCall<'a> {
    fn wrong(&self, number: usize, wanted: &str) -> Failure {
        Failure::misuse(format_args!("argument {number} of `{}` is no {wanted}", self.name))
    }

    pub(super) fn tensor(&self, number: usize) -> Result<&'a Tensor> {
        match self.values.get(number) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(self.wrong(number, "tensor")),
        }
    }

    pub(super) fn maybe(&self, number: usize) -> Result<Option<&'a Tensor>> {
        match self.values.get(number) {
            Some(Value::Maybe(tensor)) => Ok(tensor.as_ref()),
            _ => Err(self.wrong(number, "tensor that may be left out")),
        }
    }

    pub(super) fn tensors(&self, number: usize) -> Result<&'a [Tensor]> {
        match self.values.get(number) {
            Some(Value::Tensors(tensors)) => Ok(tensors),
            _ => Err(self.wrong(number, "list of tensors")),
        }
    }

    pub(super) fn real(&self, number: usize) -> Result<f64> {
        match self.values.get(number) {
            Some(Value::Real(x)) => Ok(*x),
            _ => Err(self.wrong(number, "number")),
        }
    }

    pub(super) fn whole(&self, number: usize) -> Result<i64> {
        match self.values.get(number) {
            Some(Value::Whole(x)) => Ok(*x),
            _ => Err(self.wrong(number, "whole number")),
        }
    }

    pub(super) fn reals(&self, number: usize) -> Result<&'a [f64]> {
        match self.values.get(number) {
            Some(Value::Reals(all)) => Ok(all),
            _ => Err(self.wrong(number, "list of numbers")),
        }
    }

    pub(super) fn text(&self, number: usize) -> Result<&'a str> {
        match self.values.get(number) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(self.wrong(number, "string")),
        }
    }

    /// A new tensor like one that is given.
    pub(super) fn like(&self, of: &Tensor) -> Result<Tensor> {
        self.made(of, of.sizes()?, None)
    }

    /// A new tensor on the device of one that is given.
    pub(super) fn made(&self, of: &Tensor, sizes: &[i64], dtype: Option<DLDataType>) -> Result<Tensor> {
        let facts = of.facts()?;
        let number = match dtype {
            None => facts.number,
            Some(dtype) => {
                self.torch.number(dtype).ok_or_else(|| Failure::other("PyTorch has no such element type"))?
            }
        };
        Tensor::empty(self.torch, facts.place, sizes, number)
    }

    fn output(&self, of: usize, made: &Made) -> Result<Tensor> {
        let of = self.tensor(of)?;
        let sizes = of.sizes()?;
        let axis = |i: usize| {
            let found = sizes.get(i).copied();
            let text = || format!("`{}` of `{}` has shape {sizes:?}, and no axis {i}", made.of, self.name);
            found.ok_or_else(|| Failure::coded(603, text()))
        };
        let before = || sizes.split_last().map_or(&[][..], |(_, before)| before);
        let shape: Axes = match made.shape {
            Shape::Same => sizes.into(),
            Shape::WithoutLast => before().into(),
            Shape::Axes(axes) => axes.iter().map(|&i| axis(i)).collect::<Result<_>>()?,
            Shape::Taylor2 => {
                let d = sizes.last().copied().unwrap_or(0);
                before().iter().copied().chain([1 + d + d * d]).collect()
            }
        };
        self.made(of, &shape, made.is_f32.then_some(F32))
    }

    /// Calls a function of a row of the table.
    fn step(&self, function: Function, places: &[Place], outputs: &[Tensor]) -> Result<()> {
        let mut ones: Option<(Tensor, usize)> = None;
        for place in places {
            if let Place::Ones(of) = place {
                // What says of which type, and on which device.
                let like = self.made(self.tensor(*of)?, &[1, 1], Some(F32))?;
                ones = Some((like.one(2)?, *of));
            }
        }
        let mut items: SmallVec<[Item<'_>; 16]> = SmallVec::new();
        for place in places {
            items.push(match *place {
                Place::As(i) => match &self.values[i] {
                    Value::Tensor(tensor) => View::of(tensor)?.into(),
                    Value::Real(x) => (*x).into(),
                    Value::Whole(x) => (*x).into(),
                    _ => return Err(self.wrong(i, "tensor or number")),
                },
                Place::Rows(i) => View::rows(self.tensor(i)?)?.into(),
                Place::Made(i) => View::of(&outputs[i])?.into(),
                Place::MadeRows(i) => View::rows(&outputs[i])?.into(),
                Place::MadeFlat(i) => View::flat(&outputs[i])?.into(),
                Place::Ones(_) => match &ones {
                    Some((one, of)) => {
                        let sizes = self.tensor(*of)?.sizes()?;
                        let to = &sizes[..sizes.len().min(2)];
                        View::broadcast(one, to, to)?.ok_or_else(|| self.wrong(*of, "tensor of two axes"))?.into()
                    }
                    None => return Err(self.wrong(0, "tensor")),
                },
            });
        }
        call(function, &mut items)
    }

    /// Calls a function by its name.
    pub(super) fn launch<'v>(&self, name: &str, items: impl IntoIterator<Item = Item<'v>>) -> Result<()> {
        self.call(Function::named(name)?, items)
    }

    /// Calls a function.
    pub(super) fn call<'v>(&self, function: Function, items: impl IntoIterator<Item = Item<'v>>) -> Result<()> {
        call(function, &mut items.into_iter().collect::<SmallVec<[Item<'_>; 16]>>())
    }
}

const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

/// Calls a function on PyTorch's current stream.
fn call(function: Function, items: &mut [Item<'_>]) -> Result<()> {
    let value = |item: &mut Item<'_>| match item {
        Item::Tensor(view) => TvmFfiAny::tensor(view.settle()),
        Item::Real(x) => TvmFfiAny::real(*x),
        Item::Whole(x) => TvmFfiAny::whole(*x),
    };
    let values: SmallVec<[TvmFfiAny; 16]> = items.iter_mut().map(value).collect();
    // SAFETY: the views stay where they are, and the tensors of PyTorch whose memory they are on are held. The caller of the operator
    // promises that nobody else writes them meanwhile, as of any operator. PyTorch frees their memory in the order of its current
    // stream, on which the launch is.
    unsafe { function.call(&values, current_stream) }
}
