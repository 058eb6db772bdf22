//! PTX text to a syntax tree.

pub mod ast;
mod body;
mod init;
mod lexer;
mod module;
mod operand;
mod parser;
#[cfg(test)]
mod tests;
mod types;

use crate::fault::Result;

/// Reads a file of PTX. Errors name the line, what was found and what was wanted.
pub fn parse(text: &str) -> Result<ast::Module> {
    module::module(&mut parser::Parser::new(text)?)
}
