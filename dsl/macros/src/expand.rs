//! From resolved kernels to Rust that calls `Builder`, with one `let` per operation.

use crate::ast::{self, Mode};
use crate::expand_docs::{doc_text, documented_parameters};
use crate::share::{Home, shared};
use crate::signature::is_upper;
use crate::tree::{
    DTypeRef, Dim, Expr, ExprKind, Extent, File, Index, Kernel, Local, LocalId, Loop, ParamKind, Quantity, Range, Stmt,
    TileFn,
};
use atlas_vocabulary::{BinaryOp, Copies, DType, Operands, Order, Precision, Products, Programs, Setting, WarpGrid};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;

/// Rust for every item. Kernels with mistakes become stubs, so that names of them still resolve.
pub(crate) fn expand(file: &File, root: &TokenStream) -> TokenStream {
    let mut out = TokenStream::new();
    let home = Home::next();
    for (i, f) in file.fns.iter().enumerate().filter(|(_, f)| f.origin.is_none()) {
        out.extend(match f.ast.is_device {
            true => Writer::new(root, file).called_by_device_fn(f, &home.name),
            false => tile_fn(f, file, root),
        });
        out.extend(shared(file, i, &home));
    }
    for k in &file.kernels {
        out.extend(kernel(k, file, root));
    }
    out
}

fn tile_fn(f: &TileFn, file: &File, root: &TokenStream) -> TokenStream {
    let mut w = Writer { locals: &f.locals, ..Writer::new(root, file) };
    let (name, vis, attrs) = (&f.ast.name, &f.ast.vis, &f.ast.attrs);
    let params: Vec<Ident> = (0..f.ast.params.len()).map(|i| w.local(i)).collect();
    let mut body = TokenStream::new();
    w.statements(&f.body, &mut body);
    let tails: Vec<TokenStream> = f.tail.iter().map(|e| w.operand(e, &mut body)).collect();
    let (result, tail) = match &tails[..] {
        [one] => (quote!(#root::Operand), quote!(#one)),
        many => {
            let count = many.len();
            (quote!([#root::Operand; #count]), quote!([#(#many),*]))
        }
    };
    quote! {
        #(#attrs)*
        #[allow(unused, non_snake_case, clippy::all, reason = "expanded from a tile fn, which is checked before")]
        #vis fn #name(__atlas_b: &mut #root::Builder #(, mut #params: #root::Operand)*) -> #result {
            #body
            #tail
        }
    }
}

fn kernel(k: &Kernel, file: &File, root: &TokenStream) -> TokenStream {
    let (vis, name) = (&k.ast.vis, &k.ast.name);
    let text = name.unraw().to_string();
    let doc = doc_text(&k.ast.attrs);
    let attrs = &k.ast.attrs;
    let parameters = documented_parameters(k);
    let types = k.ast.types.iter().map(|t| {
        let name = t.name.to_string();
        quote!(#root::TypeParamDef { name: #name, allowed: &[#root::DType::Bf16, #root::DType::F16, #root::DType::F32] })
    });
    let dims = k.dims.iter().map(|d| {
        let (name, whole) = (d.name.to_string(), d.whole);
        quote!(#root::DimDef { name: #name, whole: #whole })
    });
    let params = k.params.iter().map(|p| {
        let (name, dtype) = (p.name.unraw().to_string(), dtype_ref(p.dtype, root));
        match &p.kind {
            ParamKind::Scalar => quote!(#root::ParamDef::Scalar { name: #name, dtype: #dtype }),
            ParamKind::Tensor { writable, dims } => {
                let access = if *writable { quote!(Out) } else { quote!(In) };
                quote!(#root::ParamDef::Tensor { name: #name, dtype: #dtype, dims: &[#(#dims),*], access: #root::Access::#access })
            }
        }
    });
    let tune = k.ast.tune.iter().map(|t| {
        let name = t.name.to_string();
        let values = t.values.iter().map(|&value| setting(value, root));
        quote!(#root::TuneDef { name: #name, values: &[#(#values),*] })
    });
    let build = if k.broken {
        quote!(&|_, _| ::core::result::Result::Err(::core::default::Default::default()))
    } else {
        let body = kernel_body(k, file, root);
        quote!({
            #[allow(unused, non_snake_case, clippy::all, reason = "expanded from a kernel, which is checked before")]
            fn __atlas_build(
                __atlas_spec: &#root::Specialization,
                __atlas_config: &#root::Config,
            ) -> ::core::result::Result<#root::Kernel, #root::Diagnostics> {
                let mut __atlas_builder = #root::Builder::new(&#name, __atlas_spec, __atlas_config);
                let __atlas_b = &mut __atlas_builder;
                #body
                __atlas_builder.finish()
            }
            &__atlas_build
        })
    };
    let grid = k.axes.iter().map(|axis| {
        let (dim, size) = (axis.dim, grid_size(axis.size.as_ref(), root));
        quote!(#root::GridDef { dim: #dim, size: #size })
    });
    let requires = k.requires.iter().map(|r| {
        let (left, is, right) = (quantity(&r.left, root), variant(r.is.variant()), quantity(&r.right, root));
        quote!(#root::Requirement { left: #left, is: #root::Predicate::#is, right: #right })
    });
    let register = (!k.broken).then(|| register(name, root));
    quote! {
        #(#attrs)*
        #parameters
        #[allow(non_upper_case_globals, reason = "a kernel is used like a function")]
        #vis static #name: #root::KernelDef = {
            #register
            #root::KernelDef {
                name: #text,
                doc: #doc,
                file: ::core::file!(),
                types: &[#(#types),*],
                dims: &[#(#dims),*],
                params: &[#(#params),*],
                tune: &[#(#tune),*],
                grid: &[#(#grid),*],
                requires: &[#(#requires),*],
                build: #build,
                refused: ::core::option::Option::None,
            }
        };
    }
}

/// The registration of a kernel. It is inside the kernel's static, so that it is left out wherever the static is.
pub(crate) fn register(name: &Ident, root: &TokenStream) -> TokenStream {
    quote! {
        #[allow(deprecated, reason = "what a user deprecates is still registered")]
        const _: () = {
            #root::inventory::submit! { #root::Registered(&#name) }
        };
    }
}

fn kernel_body(k: &Kernel, file: &File, root: &TokenStream) -> TokenStream {
    let mut w = Writer { root, file, locals: &k.locals, knobs: &k.ast.tune, dims: &k.dims, temps: 0 };
    let mut out = TokenStream::new();
    for knob in k.ast.tune.iter().filter(|t| is_upper(&t.name)) {
        let (variable, name, loc) = (knob_variable(&knob.name), knob.name.to_string(), w.loc(knob.name.span()));
        out.extend(quote!(let #variable = __atlas_b.tune(#loc, #name);));
    }
    for i in 0..k.dims.len() {
        let d = dim_variable(i);
        out.extend(quote!(let #d = __atlas_b.dim(#i);));
    }
    for i in 0..k.params.len() {
        let p = param_variable(i);
        out.extend(quote!(let #p = __atlas_b.param(#i);));
    }
    for axis in &k.axes {
        let (coord, d) = (w.local(axis.coord), dim_variable(axis.dim));
        let make = match &axis.size {
            None => quote!(__atlas_b.grid_points(#d)),
            Some(size) => {
                let size = w.extent(size, axis_span(k, axis.coord), &mut out);
                if axis.up_to {
                    quote!(__atlas_b.grid_up_to(#d, #size))
                } else {
                    quote!(__atlas_b.grid_tiles(#d, #size))
                }
            }
        };
        out.extend(quote!(let #coord: #root::Operand = #make;));
    }
    if k.axes.iter().any(|axis| axis.cluster) {
        out.extend(quote!(__atlas_b.cluster();));
    }
    for (i, p) in k.params.iter().enumerate() {
        if matches!(p.kind, ParamKind::Scalar) {
            let (scalar, param, loc) = (scalar_variable(i), param_variable(i), w.loc(p.name.span()));
            out.extend(quote!(let #scalar = __atlas_b.scalar(#loc, #param);));
        }
    }
    w.statements(&k.body, &mut out);
    out
}

/// A quantity of `require`.
fn quantity(q: &Quantity, root: &TokenStream) -> TokenStream {
    match q {
        Quantity::Dim(d) => quote!(#root::Quantity::Dim(#d)),
        Quantity::Number(n) => quote!(#root::Quantity::Number(#n)),
        Quantity::Of(op, sides) => {
            let (op, [a, b]) = (variant(op.variant()), sides.each_ref().map(|side| quantity(side, root)));
            quote!(#root::Quantity::Of(#root::BinaryOp::#op, &[#a, #b]))
        }
    }
}

/// How an axis of the grid is counted.
fn grid_size(size: Option<&Extent>, root: &TokenStream) -> TokenStream {
    match size {
        None => quote!(#root::GridSize::Point),
        Some(Extent::Knob(i)) => quote!(#root::GridSize::Knob(#i)),
        Some(_) => quote!(#root::GridSize::Other),
    }
}

/// A value of a knob.
fn setting(value: Setting, root: &TokenStream) -> TokenStream {
    match value {
        Setting::Number(n) => quote!(#root::Setting::Number(#n)),
        Setting::WarpGrid(Some(WarpGrid { rows, cols })) => {
            let grid = quote!(#root::WarpGrid { rows: #rows, cols: #cols });
            quote!(#root::Setting::WarpGrid(::core::option::Option::Some(#grid)))
        }
        Setting::WarpGrid(None) => quote!(#root::Setting::WarpGrid(::core::option::Option::None)),
        Setting::Order(Some(order)) => {
            let order = match order {
                Order::Linear => quote!(#root::Order::Linear),
                Order::Groups(rows) => quote!(#root::Order::Groups(#rows)),
            };
            quote!(#root::Setting::Order(::core::option::Option::Some(#order)))
        }
        Setting::Order(None) => quote!(#root::Setting::Order(::core::option::Option::None)),
        Setting::Copies(Some(copies)) => {
            let copies = match copies {
                Copies::Threads => quote!(#root::Copies::Threads),
                Copies::Engine => quote!(#root::Copies::Engine),
            };
            quote!(#root::Setting::Copies(::core::option::Option::Some(#copies)))
        }
        Setting::Copies(None) => quote!(#root::Setting::Copies(::core::option::Option::None)),
        Setting::Products(Some(products)) => {
            let products = match products {
                Products::Warps => quote!(#root::Products::Warps),
                Products::Warpgroups => quote!(#root::Products::Warpgroups),
            };
            quote!(#root::Setting::Products(::core::option::Option::Some(#products)))
        }
        Setting::Programs(Some(programs)) => {
            let programs = match programs {
                Programs::Single => quote!(#root::Programs::Single),
                Programs::Persistent => quote!(#root::Programs::Persistent),
            };
            quote!(#root::Setting::Programs(::core::option::Option::Some(#programs)))
        }
        Setting::Operands(Some(operands)) => {
            let operands = match operands {
                Operands::Direct => quote!(#root::Operands::Direct),
                Operands::Packed => quote!(#root::Operands::Packed),
            };
            quote!(#root::Setting::Operands(::core::option::Option::Some(#operands)))
        }
        Setting::Operands(None) => quote!(#root::Setting::Operands(::core::option::Option::None)),
        Setting::Programs(None) => quote!(#root::Setting::Programs(::core::option::Option::None)),
        Setting::Products(None) => quote!(#root::Setting::Products(::core::option::Option::None)),
    }
}

fn axis_span(k: &Kernel, coord: LocalId) -> Span {
    k.locals[coord].name.span()
}

/// A number; a literal token carries no sign.
fn literal(value: f64, whole: bool, root: &TokenStream) -> TokenStream {
    let sign = value.is_sign_negative().then(|| quote!(-));
    if whole {
        let number = Literal::u64_unsuffixed(value.abs() as u64);
        return quote!(#root::Operand::Whole(#sign #number));
    }
    let number = Literal::f64_unsuffixed(value.abs());
    quote!(#root::Operand::Literal(#sign #number))
}

/// A variant of an enum of the vocabulary, by its name.
pub(crate) fn variant(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

fn dtype(d: DType, root: &TokenStream) -> TokenStream {
    let variant = variant(d.variant());
    quote!(#root::DType::#variant)
}

fn dtype_ref(d: DTypeRef, root: &TokenStream) -> TokenStream {
    match d {
        DTypeRef::Fixed(d) => {
            let d = dtype(d, root);
            quote!(#root::DTypeRef::Fixed(#d))
        }
        DTypeRef::Generic(i) => quote!(#root::DTypeRef::Generic(#i)),
    }
}

// Every emitted name begins with `__atlas_`. A `let` of Rust cannot hide a static or a const, whatever its hygiene, and emitted
// names stand beside the names of a caller's kernels, tile fns and consts; no caller's name begins so.
pub(crate) fn knob_variable(name: &Ident) -> Ident {
    format_ident!("__atlas_knob_{}", name, span = name.span())
}
pub(crate) fn dim_variable(i: usize) -> Ident {
    format_ident!("__atlas_d{}", i)
}
fn param_variable(i: usize) -> Ident {
    format_ident!("__atlas_p{}", i)
}
fn scalar_variable(i: usize) -> Ident {
    format_ident!("__atlas_s{}", i)
}

/// Writes statements. Every operation is a `let`, because the builder is borrowed by each call.
pub(crate) struct Writer<'a> {
    pub(crate) root: &'a TokenStream,
    pub(crate) file: &'a File,
    locals: &'a [Local],
    pub(crate) knobs: &'a [ast::Knob],
    pub(crate) dims: &'a [Dim],
    temps: usize,
}

impl<'a> Writer<'a> {
    /// One that is in no function yet.
    pub(crate) fn new(root: &'a TokenStream, file: &'a File) -> Writer<'a> {
        Writer { root, file, locals: &[], knobs: &[], dims: &[], temps: 0 }
    }
}

impl Writer<'_> {
    pub(crate) fn loc(&self, span: Span) -> TokenStream {
        let root = self.root;
        quote_spanned!(span=> #root::Loc { line: ::core::line!(), column: ::core::column!() })
    }

    fn local(&self, id: LocalId) -> Ident {
        let name = &self.locals[id].name;
        format_ident!("__atlas_{}_{}", id, name.unraw(), span = name.span())
    }

    /// `let temp = call;`, returning the temp.
    pub(crate) fn bind(&mut self, call: TokenStream, out: &mut TokenStream) -> TokenStream {
        let temp = format_ident!("__atlas_t{}", self.temps);
        self.temps += 1;
        out.extend(quote!(let #temp = #call;));
        quote!(#temp)
    }

    fn statements(&mut self, stmts: &[Stmt], out: &mut TokenStream) {
        for stmt in stmts {
            self.statement(stmt, out);
        }
    }

    fn statement(&mut self, stmt: &Stmt, out: &mut TokenStream) {
        let root = self.root;
        match stmt {
            Stmt::Let { local, value } => {
                let value = self.operand(value, out);
                let name = self.local(*local);
                out.extend(quote!(let mut #name: #root::Operand = #value;));
            }
            Stmt::Assign { local, op, value, token } => {
                let name = self.local(*local);
                let loc = self.loc(*token);
                let next = match (op, &value.kind) {
                    (None, _) => self.operand(value, out),
                    (Some(BinaryOp::Add), ExprKind::Dot { operands, precision }) => {
                        let loc = self.loc(value.token);
                        let (a, b) = (self.operand(&operands[0], out), self.operand(&operands[1], out));
                        let precision = self.precision(*precision);
                        quote!(__atlas_b.dot_acc(#loc, #name, #a, #b, #precision))
                    }
                    (Some(op), _) => {
                        let (value, op) = (self.operand(value, out), variant(op.variant()));
                        quote!(__atlas_b.binary(#loc, #root::BinaryOp::#op, #name, #value))
                    }
                };
                out.extend(quote!(#name = #next;));
            }
            Stmt::Many { locals, binds, call } => {
                let list = self.call(call, out).unwrap_or_default();
                let list = self.bind(list, out);
                for (i, &local) in locals.iter().enumerate() {
                    let name = self.local(local);
                    out.extend(match binds {
                        true => quote!(let mut #name: #root::Operand = #list[#i];),
                        false => quote!(#name = #list[#i];),
                    });
                }
            }
            Stmt::Store { update, param, index, value, token, axes, .. } => {
                let value = self.operand(value, out);
                let (param, index, loc) = (param_variable(*param), self.indices(index, out), self.loc(*token));
                let update = format_ident!("{}", update.variant());
                out.extend(match axes.get() {
                    None => quote!(__atlas_b.update(#loc, #root::Update::#update, #param, &[#(#index),*], #value);),
                    Some(axes) => {
                        let axes = axes.iter().map(|axis| match axis {
                            Some(axis) => quote!(::core::option::Option::Some(#axis)),
                            None => quote!(::core::option::Option::None),
                        });
                        quote!(__atlas_b.update_axes(#loc, #root::Update::#update, #param, &[#(#index),*], #value, &[#(#axes),*]);)
                    }
                });
            }
            Stmt::Loop(l) => self.for_loop(l, out),
            // Names are numbered, so those of two calls are different.
            Stmt::Inlined { body, .. } => self.statements(body, out),
        }
    }

    fn for_loop(&mut self, l: &Loop, out: &mut TokenStream) {
        let root = self.root;
        let loc = self.loc(l.place.start);
        let kind = variant(l.kind.variant());
        let (lo, hi, tile) = match &l.range {
            Range::Between { lo, hi } => {
                (self.operand(lo, out), self.operand(hi, out), quote!(::core::option::Option::None))
            }
            Range::Tiles { dim, size, token } => {
                let size = self.extent(size, *token, out);
                let (d, loc) = (dim_variable(*dim), self.loc(*token));
                let hi = self.bind(quote!(__atlas_b.tiles(#loc, #d, #size)), out);
                (quote!(#root::Operand::Literal(0.0)), hi, quote!(::core::option::Option::Some(#size)))
            }
        };
        let index = self.local(l.index);
        let carried: Vec<Ident> = l.carried.iter().map(|&c| self.local(c)).collect();
        let slots = 0..carried.len();
        let mut body = TokenStream::new();
        self.statements(&l.body, &mut body);
        let results = self.bind(
            quote! {
                __atlas_b.for_loop(#loc, #root::LoopKind::#kind, #lo, #hi, #tile, &[#(#carried),*],
                    |__atlas_b: &mut #root::Builder, #index: #root::Operand, __atlas_carried: &[#root::Operand]| {
                        #(let mut #carried: #root::Operand = __atlas_carried[#slots];)*
                        #body
                        ::std::vec![#(#carried),*]
                    })
            },
            out,
        );
        let slots = 0..carried.len();
        out.extend(quote!(#(#carried = #results[#slots];)*));
    }

    fn precision(&self, p: Precision) -> TokenStream {
        let (root, p) = (self.root, variant(p.variant()));
        quote!(#root::Precision::#p)
    }

    fn indices(&mut self, index: &[Index], out: &mut TokenStream) -> Vec<TokenStream> {
        let root = self.root;
        let one = |w: &mut Self, i: &Index, out: &mut TokenStream| match i {
            Index::At(e) => {
                let x = w.operand(e, out);
                quote!(#root::Index::At(#x))
            }
            Index::Span { start, len } => {
                let (x, len) = (w.operand(start, out), w.extent(len, start.token, out));
                quote!(#root::Index::Span(#x, #len))
            }
            Index::Whole => quote!(#root::Index::Whole),
        };
        index.iter().map(|i| one(self, i, out)).collect()
    }

    /// An element of a constant array.
    fn table(&mut self, name: &syn::ExprPath, indices: &[Expr], token: Span, out: &mut TokenStream) -> TokenStream {
        let (root, loc) = (self.root, self.loc(token));
        let text = name.path.segments.last().map_or(String::new(), |s| s.ident.to_string());
        let indices: Vec<TokenStream> = indices.iter().map(|i| self.operand(i, out)).collect();
        let table = self.bind(quote_spanned!(token=> #root::ConstTable::shape_and_values(&#name)), out);
        quote!(__atlas_b.table_get(#loc, #text, &#table.0, &#table.1, &[#(#indices),*]))
    }

    /// The operand that an expression denotes: a variable, a literal, or a temp bound in `out`.
    pub(crate) fn operand(&mut self, e: &Expr, out: &mut TokenStream) -> TokenStream {
        let root = self.root;
        let loc = self.loc(e.token);
        let call = match &e.kind {
            ExprKind::Literal { value, whole } => return literal(*value, *whole, root),
            ExprKind::Const(path) => return quote_spanned!(e.token=> #root::ConstNumber::number(#path)),
            ExprKind::Local(id) => {
                let name = self.local(*id);
                return quote!(#name);
            }
            ExprKind::Scalar(i) => {
                let name = scalar_variable(*i);
                return quote!(#name);
            }
            ExprKind::Knob(i) => {
                let name = knob_variable(&self.knobs[*i].name);
                return quote!(#root::Operand::from(#name));
            }
            ExprKind::Size(dim) => {
                // A constant size is an i32 all the same: it divides and compares as one.
                let d = dim_variable(*dim);
                let size = self.bind(quote!(__atlas_b.dim_size(#loc, #d)), out);
                quote!(__atlas_b.cast(#loc, #root::DType::I32, #size))
            }
            ExprKind::Table { name, indices } => self.table(name, indices, e.token, out),
            ExprKind::Unary(op, x) => {
                let (x, op) = (self.operand(x, out), variant(op.variant()));
                quote!(__atlas_b.unary(#loc, #root::UnaryOp::#op, #x))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b, op) = (self.operand(a, out), self.operand(b, out), variant(op.variant()));
                quote!(__atlas_b.binary(#loc, #root::BinaryOp::#op, #a, #b))
            }
            ExprKind::Compare(p, a, b) => {
                let (a, b, p) = (self.operand(a, out), self.operand(b, out), variant(p.variant()));
                quote!(__atlas_b.compare(#loc, #root::Predicate::#p, #a, #b))
            }
            ExprKind::Select(parts) => {
                let [c, t, f] = [0, 1, 2].map(|i| self.operand(&parts[i], out));
                quote!(__atlas_b.select(#loc, #c, #t, #f))
            }
            ExprKind::Clamp(_) | ExprKind::Fma(_) | ExprKind::Random(..) => self.composed(e, out),
            ExprKind::IsNan(_) | ExprKind::Transpose(_) | ExprKind::ClusterSum(_) | ExprKind::Scan { .. } => {
                self.composed(e, out)
            }
            ExprKind::Cast(to, x) => {
                let x = self.operand(x, out);
                let to = self.dtype(*to);
                let to = self.bind(to, out);
                quote!(__atlas_b.cast(#loc, #to, #x))
            }
            ExprKind::CastLike(parts) => {
                let [x, like] = [0, 1].map(|i| self.operand(&parts[i], out));
                quote!(__atlas_b.cast_like(#loc, #x, #like))
            }
            ExprKind::Dot { operands, precision } => {
                let [a, b] = [0, 1].map(|i| self.operand(&operands[i], out));
                let precision = self.precision(*precision);
                quote!(__atlas_b.dot(#loc, #a, #b, #precision))
            }
            ExprKind::Reduce { op, value, axis } => {
                let (x, op) = (self.operand(value, out), variant(op.variant()));
                match axis {
                    Some((axis, _)) => quote!(__atlas_b.reduce(#loc, #root::ReduceOp::#op, #x, #axis)),
                    None => quote!(__atlas_b.reduce_all(#loc, #root::ReduceOp::#op, #x)),
                }
            }
            ExprKind::Load { param, index } => {
                let (param, index) = (param_variable(*param), self.indices(index, out));
                quote!(__atlas_b.load(#loc, #param, &[#(#index),*]))
            }
            ExprKind::Fill { dtype, shape, value } => {
                let value = self.operand(value, out);
                let (shape, to) = (self.extents(shape, e.token, out), self.dtype(*dtype));
                let to = self.bind(to, out);
                quote!(#root::fill(__atlas_b, #loc, #value, #to, #shape))
            }
            ExprKind::Iota { shape, axis: (axis, _) } => {
                let shape = self.extents(shape, e.token, out);
                quote!(__atlas_b.iota(#loc, #shape, #axis))
            }
            ExprKind::Or(parts) => {
                let [x, other] = [0, 1].map(|i| self.operand(&parts[i], out));
                quote!(__atlas_b.other(#loc, #x, #other))
            }
            ExprKind::Broadcast { value, shape } => {
                let value = self.operand(value, out);
                let shape = self.extents(shape, e.token, out);
                quote!(__atlas_b.broadcast(#loc, #value, #shape))
            }
            ExprKind::CallFn { .. } | ExprKind::Derivative { mode: Mode::Forward, .. } => {
                return self.call(e, out).map(|call| self.bind(call, out)).unwrap_or_default();
            }
            ExprKind::Derivative { mode: Mode::Reverse, .. } => {
                let list = self.call(e, out).unwrap_or_default();
                let list = self.bind(list, out);
                return quote!(#list[0]);
            }
            ExprKind::Bad => return quote!(#root::Operand::Poison),
        };
        self.bind(call, out)
    }

    fn dtype(&self, d: DTypeRef) -> TokenStream {
        match d {
            DTypeRef::Fixed(d) => dtype(d, self.root),
            DTypeRef::Generic(_) => {
                let r = dtype_ref(d, self.root);
                quote!(__atlas_b.dtype(#r))
            }
        }
    }
}
