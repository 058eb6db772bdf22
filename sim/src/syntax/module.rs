//! Modules: directives, variables, functions.

use super::ast::{Function, Module, Space, Type, Variable};
use super::body::body;
use super::init::initializer;
use super::lexer::Token;
use super::parser::Parser;
use crate::fault::Result;

/// A whole file.
pub(super) fn module(p: &mut Parser<'_>) -> Result<Module> {
    let mut module = Module {
        version: version(p)?,
        target: String::new(),
        address_size: 64,
        variables: Vec::new(),
        functions: Vec::new(),
        files: Vec::new(),
    };
    loop {
        let mut external = false;
        while let Token::Dot(linkage @ ("visible" | "extern" | "weak" | "common")) = p.peek() {
            external |= linkage == "extern";
            p.next();
        }
        match p.peek() {
            Token::End => break,
            Token::Dot("target") => {
                p.next();
                module.target = p.word("a target")?.to_owned();
                while p.eat(Token::Comma) {
                    p.word("an option of the target")?;
                }
            }
            Token::Dot("address_size") => {
                p.next();
                module.address_size = p.number32()?;
            }
            Token::Dot("file") => module.files.push(file(p)?),
            Token::Dot("section") => section(p)?,
            Token::Dot("pragma") => pragma(p)?,
            Token::Dot("entry") => {
                p.next();
                module.functions.push(function(p, true)?);
            }
            Token::Dot("func") => {
                p.next();
                module.functions.push(function(p, false)?);
            }
            Token::Dot(word) if space(word).is_some() => variables(p, external, &mut module.variables)?,
            _ => return Err(p.wanted("a directive, a variable or a function")),
        }
    }
    if module.target.is_empty() {
        return Err(p.error("the module has no .target"));
    }
    Ok(module)
}

fn version(p: &mut Parser<'_>) -> Result<(u32, u32)> {
    p.expect(Token::Dot("version"))?;
    let wanted = p.wanted("a version number");
    let Token::Decimal(text) = p.next() else { return Err(wanted) };
    let (major, minor) = text.split_once('.').unwrap_or((text, ""));
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => Ok((major, minor)),
        _ => Err(wanted),
    }
}

/// `.file 1 "name"`. A time and a size are not kept.
fn file(p: &mut Parser<'_>) -> Result<(u32, String)> {
    p.next();
    let number = p.number32()?;
    let wanted = p.wanted("the name of a file");
    let Token::Text(name) = p.next() else { return Err(wanted) };
    while p.eat(Token::Comma) {
        p.number()?;
    }
    Ok((number, name.trim_matches('"').to_owned()))
}

fn section(p: &mut Parser<'_>) -> Result<()> {
    p.next();
    match p.next() {
        Token::Dot(_) | Token::Word(_) => p.skip_braces(),
        _ => Err(p.wanted("the name of a section")),
    }
}

/// `.pragma "a", "b";`
pub(super) fn pragma(p: &mut Parser<'_>) -> Result<()> {
    p.next();
    loop {
        let wanted = p.wanted("a text");
        let Token::Text(_) = p.next() else { return Err(wanted) };
        if !p.eat(Token::Comma) {
            return p.expect(Token::Semicolon);
        }
    }
}

/// The state space of a variable by its directive.
pub(super) fn space(word: &str) -> Option<Space> {
    Some(match word {
        "global" => Space::Global,
        "shared" | "shared::cta" => Space::Shared,
        "const" => Space::Const,
        "local" => Space::Local,
        "param" => Space::Param,
        _ => return None,
    })
}

/// `.shared .align 16 .b8 a[64], b[4];` from the space on.
pub(super) fn variables(p: &mut Parser<'_>, external: bool, found: &mut Vec<Variable>) -> Result<()> {
    let place = p.dot("a state space")?;
    let place = space(place).ok_or_else(|| p.error("this is no state space"))?;
    let shape = shape(p)?;
    loop {
        found.push(declarator(p, place, &shape, external)?);
        if !p.eat(Token::Comma) {
            return p.expect(Token::Semicolon);
        }
    }
}

/// The part of a declaration before the name.
struct DeclarationSpecifiers {
    ty: Type,
    lanes: u32,
    align: Option<u32>,
}

fn shape(p: &mut Parser<'_>) -> Result<DeclarationSpecifiers> {
    let (mut ty, mut lanes, mut align) = (None, 1, None);
    while let Token::Dot(word) = p.peek() {
        match word {
            "align" => {
                p.next();
                let value = p.number32()?;
                if !value.is_power_of_two() {
                    return Err(p.error("the alignment is no power of two"));
                }
                // That of a pointer's target, after `.ptr`, is not the parameter's own.
                if ty.is_none() {
                    align = Some(value);
                }
                continue;
            }
            "v2" => lanes = 2,
            "v4" => lanes = 4,
            "ptr" | "global" | "shared" | "const" | "local" if ty.is_some() => {}
            "attribute" => {
                p.next();
                attribute(p)?;
                continue;
            }
            _ => match Type::from_suffix(word) {
                Some(found) if ty.is_none() && found != Type::Pred => ty = Some(found),
                _ => return Err(p.wanted("a type")),
            },
        }
        p.next();
    }
    let ty = ty.ok_or_else(|| p.wanted("a type"))?;
    Ok(DeclarationSpecifiers { ty, lanes, align })
}

/// `.attribute(.managed)`, which does not affect execution.
fn attribute(p: &mut Parser<'_>) -> Result<()> {
    p.expect(Token::LeftParen)?;
    while !matches!(p.peek(), Token::RightParen | Token::End) {
        p.next();
    }
    p.expect(Token::RightParen)
}

/// The most dimensions of an array. This limits how deep its initial value nests.
const DIMENSIONS: usize = 8;

fn declarator(p: &mut Parser<'_>, space: Space, shape: &DeclarationSpecifiers, external: bool) -> Result<Variable> {
    let line = p.line();
    let name = p.word("the name of a variable")?.to_owned();
    let (mut dimensions, mut unsized_array) = (Vec::new(), false);
    while p.eat(Token::LeftBracket) {
        if p.eat(Token::RightBracket) {
            if !dimensions.is_empty() || unsized_array {
                return Err(p.error("only the first dimension may be left open"));
            }
            unsized_array = true;
            continue;
        }
        dimensions.push(p.number()?);
        if dimensions.len() > DIMENSIONS {
            return Err(p.error("the variable has too many dimensions"));
        }
        p.expect(Token::RightBracket)?;
    }
    let lanes = u64::from(shape.lanes);
    let inner = dimensions.iter().try_fold(lanes, |n, &d| n.checked_mul(d));
    let inner = inner.ok_or_else(|| p.error("the variable is too large"))?;
    let init = if p.eat(Token::Equal) {
        let mut all = if unsized_array { vec![0] } else { Vec::new() };
        all.extend(&dimensions);
        if shape.lanes > 1 {
            all.push(lanes);
        }
        Some(initializer(p, shape.ty, &all)?)
    } else {
        None
    };
    let size = u64::from(shape.ty.bytes());
    let written = init.as_ref().map_or(0, |bytes| bytes.len() as u64).div_ceil(size);
    let count = match (unsized_array, &init) {
        (true, None) => None,
        (true, Some(_)) => Some(written.next_multiple_of(inner.max(1))),
        (false, _) => Some(inner),
    };
    if count.is_some_and(|count| written > count) {
        return Err(p.error("more initial values than the variable has room for"));
    }
    let align = shape.align.unwrap_or(shape.ty.bytes().saturating_mul(shape.lanes));
    Ok(Variable { name, space, ty: shape.ty, align, count, external, init, line })
}

/// From the name, or the return parameters, of a function to the end of its body.
fn function(p: &mut Parser<'_>, entry: bool) -> Result<Function> {
    if let Token::Dot("attribute") = p.peek() {
        p.next();
        attribute(p)?;
    }
    if !entry && p.peek() == Token::LeftParen {
        params(p)?;
    }
    let line = p.line();
    let name = p.word("the name of a function")?.to_owned();
    let params = if p.peek() == Token::LeftParen { params(p)? } else { Vec::new() };
    let mut directives = Vec::new();
    loop {
        match p.peek() {
            Token::Dot("pragma") => pragma(p)?,
            Token::Dot(word) => {
                if !DIRECTIVES.contains(&word) {
                    return Err(p.wanted("a directive of a function, its body or `;`"));
                }
                p.next();
                directives.push((word.to_owned(), numbers(p)?));
            }
            Token::Semicolon => {
                p.next();
                return Ok(Function { name, entry, params, directives, body: None, line });
            }
            _ => break,
        }
    }
    let body = Some(body(p)?);
    Ok(Function { name, entry, params, directives, body, line })
}

const DIRECTIVES: &[&str] = &[
    "reqntid",
    "maxntid",
    "minnctapersm",
    "maxnctapersm",
    "maxnreg",
    "explicitcluster",
    "reqnctapercluster",
    "maxclusterrank",
    "blocksareclusters",
    "noreturn",
];

fn numbers(p: &mut Parser<'_>) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    if !matches!(p.peek(), Token::Int(_)) {
        return Ok(found);
    }
    loop {
        found.push(p.number32()?);
        if !p.eat(Token::Comma) {
            return Ok(found);
        }
    }
}

fn params(p: &mut Parser<'_>) -> Result<Vec<Variable>> {
    p.expect(Token::LeftParen)?;
    let mut found = Vec::new();
    if p.eat(Token::RightParen) {
        return Ok(found);
    }
    loop {
        match p.dot("`.param` or `.reg`")? {
            "param" | "reg" => {}
            _ => return Err(p.error("a parameter is `.param` or `.reg`")),
        }
        let shape = shape(p)?;
        found.push(declarator(p, Space::Param, &shape, false)?);
        if !p.eat(Token::Comma) {
            p.expect(Token::RightParen)?;
            return Ok(found);
        }
    }
}
