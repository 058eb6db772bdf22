//! Errors of the interpreter, and whether the caller or the kernel is at fault.

use atlas_dsl::ir::Loc;
use std::fmt;

/// Why a kernel did not run. Outputs may be partly written if the kernel itself is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterpError {
    /// A view reaches outside its bytes, or overlaps itself where it is written.
    View(String),
    /// An argument or a dim does not fit the kernel's signature.
    Argument {
        /// The parameter or dim.
        name: String,
        /// What was found, and what was wanted.
        message: String,
    },
    /// The kernel takes more operations than it may.
    Work {
        /// The number of operations that it may take.
        most: u64,
    },
    /// Two stores of `store_disjoint` reach one element.
    Met {
        /// The tensor.
        name: String,
        /// The coordinates of the element.
        element: Vec<u64>,
    },
    /// The kernel did something that no verified kernel does, such as indexing past the end of a table.
    Kernel {
        /// What it did.
        message: String,
        /// Where, if known.
        loc: Loc,
    },
}

impl InterpError {
    pub(crate) fn argument(name: &str, message: impl Into<String>) -> InterpError {
        InterpError::Argument { name: name.to_owned(), message: message.into() }
    }

    /// A fault of the kernel. The evaluator adds the location.
    pub(crate) fn kernel(message: impl Into<String>) -> InterpError {
        InterpError::Kernel { message: message.into(), loc: Loc::default() }
    }

    /// The same error at a location, unless it has one.
    pub(crate) fn at(self, place: Loc) -> InterpError {
        match self {
            InterpError::Kernel { message, loc } if loc == Loc::default() => {
                InterpError::Kernel { message, loc: place }
            }
            other => other,
        }
    }
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterpError::View(message) => write!(f, "{message}"),
            InterpError::Met { name, element } => {
                write!(f, "`store_disjoint` stores the element {element:?} of `{name}` twice in this launch")
            }
            InterpError::Argument { name, message } => write!(f, "`{name}`: {message}"),
            InterpError::Kernel { message, loc } if loc.line > 0 => {
                write!(f, "{message} (line {}, column {})", loc.line, loc.column)
            }
            InterpError::Kernel { message, .. } => write!(f, "{message}"),
            InterpError::Work { most } => write!(f, "it takes more than {} million operations", most / 1_000_000),
        }
    }
}

impl std::error::Error for InterpError {}
