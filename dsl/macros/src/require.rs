//! `require { H % J == 0 }`: conditions on the sizes of dims.

use crate::ast::{ExprSyntax, ExprSyntaxKind};
use crate::error::Errors;
use crate::names::did_you_mean;
use crate::tree::{Dim, Quantity, Requirement};
use atlas_vocabulary::BinaryOp;

/// A condition as written; `None` after a mistake that was reported.
pub(crate) fn requirement(e: &ExprSyntax, dims: &[Dim], errors: &mut Errors) -> Option<Requirement> {
    match &e.kind {
        ExprSyntaxKind::Compare(is, left, right) => {
            let (left, right) = (quantity(left, dims, errors), quantity(right, dims, errors));
            Some(Requirement { left: left?, is: *is, right: right? })
        }
        ExprSyntaxKind::Binary(BinaryOp::And, ..) => {
            errors.push(32, e.place, "each condition of `require` stands alone: write `,` for `&&`");
            None
        }
        _ => {
            errors.push(32, e.place, "`require` wants conditions on the sizes of dims, such as `H % J == 0`");
            None
        }
    }
}

fn quantity(e: &ExprSyntax, dims: &[Dim], errors: &mut Errors) -> Option<Quantity> {
    match &e.kind {
        ExprSyntaxKind::Name(name) => match dims.iter().position(|d| d.name == *name) {
            Some(dim) => Some(Quantity::Dim(dim)),
            None => {
                let known: Vec<String> = dims.iter().map(|d| d.name.to_string()).collect();
                let hint = did_you_mean(&name.to_string(), known.iter().map(String::as_str));
                let message = format!("`{name}` is no dim of the signature; `require` speaks of dims alone{hint}");
                errors.push(32, name.span(), message);
                None
            }
        },
        ExprSyntaxKind::Literal { value, whole: true } if (0.0..=f64::from(u32::MAX)).contains(value) => {
            Some(Quantity::Number(*value as u32))
        }
        ExprSyntaxKind::Binary(op, a, b) if op.is_arithmetic() => {
            let (a, b) = (quantity(a, dims, errors), quantity(b, dims, errors));
            Some(Quantity::Of(*op, Box::new([a?, b?])))
        }
        ExprSyntaxKind::Call { name, generics, args } if generics.is_empty() => {
            match (BinaryOp::from_text(&name.to_string()), &args[..]) {
                (Some(op), [a, b]) if op.is_arithmetic() => {
                    let (a, b) = (quantity(a, dims, errors), quantity(b, dims, errors));
                    Some(Quantity::Of(op, Box::new([a?, b?])))
                }
                _ if name == "size" && args.len() == 1 => quantity(&args[0], dims, errors),
                _ => no_quantity(e, errors),
            }
        }
        _ => no_quantity(e, errors),
    }
}

fn no_quantity(e: &ExprSyntax, errors: &mut Errors) -> Option<Quantity> {
    let message = "a quantity in `require` is a dim, a whole number, or `+ - * / % min max` of these";
    errors.push(32, e.place, message);
    None
}
