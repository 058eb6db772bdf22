//! A tile fn for kernels of other modules: a macro of its name, which hands its text over. `import` says how it is used.

use crate::ast::conditions;
use crate::tree::{File, TileFn};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use syn::Visibility;
use syn::ext::IdentExt;

/// Macros that every module has: a macro of one of these names would hide it.
const OF_RUST: [&str; 39] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "cfg",
    "column",
    "compile_error",
    "concat",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "env",
    "eprint",
    "eprintln",
    "file",
    "format",
    "format_args",
    "include",
    "include_bytes",
    "include_str",
    "line",
    "macro_rules",
    "matches",
    "module_path",
    "option_env",
    "panic",
    "print",
    "println",
    "stringify",
    "thread_local",
    "todo",
    "try",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
    "assert_matches",
    "debug_assert_matches",
];

/// An input of `atlas_kernel!`.
pub(crate) struct Home {
    /// Its number in this crate.
    number: u32,
    /// What no input of any crate has but this one.
    pub(crate) name: String,
}

impl Home {
    /// The input that is being expanded.
    pub(crate) fn next() -> Home {
        static INPUTS: AtomicU32 = AtomicU32::new(0);
        let number = INPUTS.fetch_add(1, Ordering::Relaxed);
        let mut hasher = DefaultHasher::new();
        number.hash(&mut hasher);
        for key in ["CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO_CRATE_NAME"] {
            std::env::var(key).unwrap_or_default().hash(&mut hasher);
        }
        Home { number, name: format!("{:016x}", hasher.finish()) }
    }
}

/// The macro of a tile fn of this input, visible as the function is.
pub(crate) fn shared(file: &File, index: usize, home: &Home) -> TokenStream {
    let f = &file.fns[index];
    let (name, vis) = (&f.ast.name, &f.ast.vis);
    let text = name.unraw().to_string();
    let twice = f.group != index && f.condition().next().is_none();
    if twice || OF_RUST.contains(&text.as_str()) {
        return TokenStream::new();
    }
    let package = package(&file.fns, index, &home.name);
    // A macro that is not exported is seen by its own crate alone. One that is stands beside those of all crates.
    let exported = matches!(vis, Visibility::Public(_));
    let export = exported.then(|| quote!(#[macro_export]));
    let macro_name = match exported {
        true => format_ident!("__atlas_tile_fn_{}_{}", text, home.name),
        false => format_ident!("__atlas_tile_fn_{}_{}", text, home.number),
    };
    let condition: Vec<_> = f.condition().collect();
    quote! {
        #(#condition)*
        #[doc(hidden)]
        #export
        #[allow(unused_macros, non_local_definitions, reason = "it is there for kernels of other modules")]
        macro_rules! #macro_name {
            ({ $($with:tt)* } $($rest:tt)*) => { $($with)* ! { { #package } $($rest)* } };
        }
        #(#condition)*
        #[doc(hidden)]
        #[allow(unused_imports, unreachable_pub, reason = "it is there for kernels of other modules")]
        #vis use #macro_name as #name;
    }
}

/// A function and all that it calls, as `import` reads them.
fn package(fns: &[TileFn], index: usize, home: &str) -> TokenStream {
    let mut numbers = BTreeMap::from([(index, 0)]);
    let mut all = vec![index];
    let mut next = 0;
    while let Some(&i) = all.get(next) {
        for &called in TileFn::versions(fns, i).flat_map(|f| f.uses.values()) {
            let number = numbers.len();
            if let std::collections::btree_map::Entry::Vacant(free) = numbers.entry(called) {
                free.insert(number);
                all.push(called);
            }
        }
        next += 1;
    }
    let one = |&i: &usize| {
        // Of the function itself it is the version of this macro's `cfg`.
        let versions: Vec<&TileFn> = if i == index { vec![&fns[i]] } else { TileFn::versions(fns, i).collect() };
        let home = fns[i].origin.as_ref().map_or(home, |o| &o.home);
        let (name, params, results) = (&fns[i].ast.name, &fns[i].ast.params, fns[i].results);
        let what = if fns[i].ast.is_device { quote!(device) } else { quote!(tile) };
        let uses: BTreeMap<&String, usize> =
            versions.iter().flat_map(|f| &f.uses).map(|(k, i)| (k, numbers[i])).collect();
        let uses = uses.iter().map(|(key, number)| quote!(#key #number));
        let bodies = versions.iter().filter(|f| !f.broken).map(|f| {
            let (name, tokens) = (&f.ast.name, &f.ast.tokens);
            quote!(#what fn #name #tokens)
        });
        quote!([#home #what #name (#(#params),*) #results [#(#uses)*] { #(#bodies)* }])
    };
    all.iter().map(one).collect()
}

impl TileFn {
    /// The attributes that may leave it out.
    pub(crate) fn condition(&self) -> impl Iterator<Item = &syn::Attribute> {
        conditions(&self.ast.attrs)
    }
}
