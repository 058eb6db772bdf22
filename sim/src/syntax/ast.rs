//! PTX as written: a module of variables and functions, instructions as words and operands.
//!
//! The syntax tree gives instructions no meaning; `decode` does.

/// Scalar types of PTX, by their suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// `.pred`
    Pred,
    /// `.b8` .. `.b128`
    B8,
    /// `.b16`
    B16,
    /// `.b32`
    B32,
    /// `.b64`
    B64,
    /// `.b128`
    B128,
    /// `.u8`
    U8,
    /// `.u16`
    U16,
    /// `.u32`
    U32,
    /// `.u64`
    U64,
    /// `.s8`
    S8,
    /// `.s16`
    S16,
    /// `.s32`
    S32,
    /// `.s64`
    S64,
    /// `.f16`
    F16,
    /// `.f16x2`
    F16x2,
    /// `.bf16`
    Bf16,
    /// `.bf16x2`
    Bf16x2,
    /// `.f32`
    F32,
    /// `.f32x2`
    F32x2,
    /// `.f64`
    F64,
    /// `.tf32`
    Tf32,
    /// `.e4m3`
    E4m3,
    /// `.e4m3x2`
    E4m3x2,
    /// `.e5m2`
    E5m2,
    /// `.e5m2x2`
    E5m2x2,
}

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// No state space written: a generic address.
    Generic,
    /// `.global`
    Global,
    /// `.shared`, `.shared::cta`
    Shared,
    /// `.shared::cluster`
    SharedCluster,
    /// `.const`
    Const,
    /// `.local`
    Local,
    /// `.param`, `.param::entry`
    Param,
}

/// A file of PTX.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version MAJOR.MINOR`.
    pub version: (u32, u32),
    /// `.target`, without options: `sm_90a`.
    pub target: String,
    /// `.address_size`; 64 if absent.
    pub address_size: u32,
    /// Module-scope variables, in order.
    pub variables: Vec<Variable>,
    /// `.entry` and `.func`, in order; declarations without a body too.
    pub functions: Vec<Function>,
    /// `.file` directives: number and name.
    pub files: Vec<(u32, String)>,
}

/// A variable or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    pub space: Space,
    pub ty: Type,
    /// `.align`, else the size of the type (times the vector length).
    pub align: u32,
    /// Number of elements; 1 for a scalar; `None` for an unsized `.extern` array.
    pub count: Option<u64>,
    /// `.extern`.
    pub external: bool,
    /// Initial bytes, if written; shorter than the variable means zeros after.
    pub init: Option<Vec<u8>>,
    /// Line of the name, from 1.
    pub line: u32,
}

/// An `.entry` or a `.func`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    /// True for `.entry`.
    pub entry: bool,
    pub params: Vec<Variable>,
    /// Performance directives: `reqntid` with its numbers, `minnctapersm`, `explicitcluster` with none.
    pub directives: Vec<(String, Vec<u32>)>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    pub line: u32,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`
    Label { name: String, line: u32 },
    /// `.reg .b32 %r<10>;` has a count, `.reg .b32 x, y;` has one entry for each name and none.
    Registers { ty: Type, name: String, count: Option<u32>, line: u32 },
    /// `.shared`, `.local`, `.param` variables of a body.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// `.loc FILE LINE COLUMN`: where the next instructions come from.
    Loc { file: u32, line: u32, column: u32 },
    /// `{ .. }`: a scope of names.
    Block(Vec<Statement>),
    /// `name: .branchtargets a, b;`
    BranchTargets { name: String, targets: Vec<String>, line: u32 },
}

/// `@!p opcode.mod.mod operands;`
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Line of the opcode, from 1.
    pub line: u32,
    /// The register and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// The first word: `cp`.
    pub opcode: String,
    /// The words after it, without their dots: `["async", "cg", "shared", "global"]`; `shared::cta` is one word.
    pub modifiers: Vec<String>,
    pub operands: Vec<Operand>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a special register (`%tid.x`), a label or the address of a variable.
    Name(String),
    /// `!%p1`
    Not(String),
    /// An integer, `-1` as its two's complement.
    Int(u64),
    /// `0fXXXXXXXX`: bits.
    F32(u32),
    /// `0dXXXXXXXXXXXXXXXX`: bits.
    F64(u64),
    /// `name+4` outside brackets: an address constant.
    Offset(String, i64),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `%p1|%p2`
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Sink,
    /// `[base+offset]`; the base is a name or an integer.
    Address { base: Box<Operand>, offset: i64 },
    /// `[map, {x, y}]`: a tensor map and coordinates; with a further vector after them for im2col.
    TensorAddress { map: Box<Operand>, coordinates: Vec<Operand> },
}
