//! Reads one field of a `Model`: its type's shape, its documentation and its `#[field(…)]` words.

use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Expr, ExprLit, GenericArgument, Ident, Lit, LitStr, Meta, PathArguments, Type, UnOp};

/// The Rust form of a field that may be absent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `Option<T>`.
    Optional,
    /// `Vec`, `BTreeSet`, `BTreeMap`: an absent field is an empty collection.
    Collection,
    /// Any other type.
    Plain,
}

/// The argument of `default`.
enum DefaultWord {
    Empty,
    Constant(Expr),
}

/// A mark that nothing acts on the field, or on one word of its enum, yet.
pub(crate) struct DormantInput {
    pub(crate) word: Option<String>,
    pub(crate) because: String,
}

impl DormantInput {
    /// The mark as a sentence for users, after the field's documentation.
    fn sentence(&self) -> String {
        match &self.word {
            None => format!("Not acted on yet: {}.", self.because),
            Some(word) => format!("`{word}` is not acted on yet: {}.", self.because),
        }
    }
}

/// One field of the struct.
pub(crate) struct FieldInput {
    pub(crate) ident: Ident,
    pub(crate) wire: String,
    pub(crate) doc: String,
    pub(crate) ty: Type,
    /// `T` of `Option<T>`.
    pub(crate) inner: Option<Type>,
    pub(crate) shape: Shape,
    pub(crate) bounds: Option<(Expr, Expr)>,
    pub(crate) effect: &'static str,
    pub(crate) text: bool,
    pub(crate) sensitive: bool,
    pub(crate) immutable: bool,
    pub(crate) volatile: bool,
    pub(crate) flatten: bool,
    pub(crate) dormant: Vec<DormantInput>,
    /// The fields that decide where a secret is sent. `None`: the field is no secret.
    pub(crate) destination: Option<Vec<String>>,
    server_chosen: bool,
    default: Option<DefaultWord>,
}

const EFFECTS: [(&str, &str); 5] = [
    ("none", "None"),
    ("live", "Live"),
    ("reboot", "Reboot"),
    ("redeploy", "Redeploy"),
    ("replace", "Replace"),
];

impl FieldInput {
    pub(crate) fn parse(field: &syn::Field) -> syn::Result<Self> {
        let ident =
            field.ident.clone().ok_or_else(|| syn::Error::new_spanned(field, "Model needs named fields"))?;
        let (shape, inner) = shape(&field.ty);
        let mut this = Self {
            wire: ident.unraw().to_string(),
            ident,
            doc: doc(&field.attrs),
            ty: field.ty.clone(),
            inner,
            shape,
            bounds: None,
            effect: "Live",
            text: false,
            sensitive: false,
            immutable: false,
            volatile: false,
            flatten: false,
            dormant: Vec::new(),
            destination: None,
            server_chosen: false,
            default: None,
        };
        let (mut min, mut max) = (None, None);
        for attr in field.attrs.iter().filter(|a| a.path().is_ident("field")) {
            attr.parse_nested_meta(|meta| {
                let word = meta.path.get_ident().map(Ident::to_string).unwrap_or_default();
                if let Some((_, effect)) = EFFECTS.iter().find(|(w, _)| *w == word) {
                    this.effect = effect;
                    return Ok(());
                }
                match word.as_str() {
                    "min" => min = Some(meta.value()?.parse::<Expr>()?),
                    "max" => max = Some(meta.value()?.parse::<Expr>()?),
                    "name" => this.wire = meta.value()?.parse::<LitStr>()?.value(),
                    "default" if meta.input.peek(syn::Token![=]) => {
                        this.default = Some(DefaultWord::Constant(meta.value()?.parse()?));
                    }
                    "default" => this.default = Some(DefaultWord::Empty),
                    "text" => this.text = true,
                    "sensitive" => this.sensitive = true,
                    "volatile" => this.volatile = true,
                    "flatten" => this.flatten = true,
                    "server_chosen" => this.server_chosen = true,
                    "dormant" if meta.input.peek(syn::Token![=]) => {
                        let because = meta.value()?.parse::<LitStr>()?.value();
                        this.dormant.push(DormantInput { word: None, because });
                    }
                    "dormant" => meta.parse_nested_meta(|of| {
                        let word = of.path.require_ident()?.unraw().to_string();
                        let because = of.value()?.parse::<LitStr>()?.value();
                        this.dormant.push(DormantInput { word: Some(word), because });
                        Ok(())
                    })?,
                    "sent_to" => meta.parse_nested_meta(|of| {
                        let field = of.path.require_ident()?.unraw().to_string();
                        this.destination.get_or_insert_default().push(field);
                        Ok(())
                    })?,
                    "sent_nowhere" => this.destination = Some(Vec::new()),
                    "immutable" => {
                        this.immutable = true;
                        this.effect = "Replace";
                    }
                    other => return Err(meta.error(format!("`{other}` is not a word of #[field(…)]"))),
                }
                Ok(())
            })?;
        }
        this.bounds = match (min, max) {
            (Some(min), Some(max)) => Some((min, max)),
            (None, None) => None,
            _ => return Err(syn::Error::new_spanned(field, "give both min and max")),
        };
        if this.shape == Shape::Collection && this.default.is_none() {
            this.default = Some(DefaultWord::Empty);
        }
        if this.shape == Shape::Optional && this.default.is_some() {
            return Err(syn::Error::new_spanned(field, "a field with a default is not an Option"));
        }
        if this.server_chosen && this.shape != Shape::Optional {
            return Err(syn::Error::new_spanned(field, "a server-chosen field is an Option"));
        }
        if this.doc.is_empty() && !this.flatten {
            return Err(syn::Error::new_spanned(
                field,
                "a field of a Model needs documentation: users read it",
            ));
        }
        if let Some(fields) = this.destination.as_deref().and_then(alternatives) {
            this.doc.push_str(&format!(" It has to be given anew when {fields} changes."));
        }
        for dormant in &this.dormant {
            this.doc.push(' ');
            this.doc.push_str(&dormant.sentence());
        }
        Ok(this)
    }

    /// An expression of type `Presence`.
    pub(crate) fn presence(&self) -> Tokens {
        match (&self.default, self.server_chosen, self.shape) {
            (_, true, _) => quote!(::basalt_api::Presence::ServerChosen),
            (Some(DefaultWord::Empty), ..) => {
                quote!(::basalt_api::Presence::Default(::basalt_api::Const::Empty))
            }
            (Some(DefaultWord::Constant(value)), ..) => {
                let constant = constant(value);
                quote!(::basalt_api::Presence::Default(#constant))
            }
            (None, _, Shape::Optional) => quote!(::basalt_api::Presence::Optional),
            (None, ..) => quote!(::basalt_api::Presence::Required),
        }
    }

    /// The Rust value of an absent field; `None` for a required field.
    pub(crate) fn default_value(&self) -> Option<Tokens> {
        let ty = &self.ty;
        if self.flatten {
            return Some(quote!(<#ty as ::core::default::Default>::default()));
        }
        match (&self.default, self.shape) {
            (_, Shape::Optional) => Some(quote!(None)),
            (Some(DefaultWord::Empty), _) => Some(quote!(<#ty as ::core::default::Default>::default())),
            (Some(DefaultWord::Constant(Expr::Lit(ExprLit { lit: Lit::Str(text), .. }))), _) => {
                Some(quote!(<#ty as ::basalt_api::__private::FromDefault>::from_default(#text)))
            }
            (Some(DefaultWord::Constant(value @ Expr::Lit(ExprLit { lit: Lit::Int(_), .. }))), _)
                if !is_primitive(ty) =>
            {
                Some(quote!(<#ty>::new(#value)))
            }
            (Some(DefaultWord::Constant(value)), _) => Some(value.to_token_stream()),
            (None, _) => None,
        }
    }
}

/// The `Const` of a default's expression: a literal, or a word of an enum.
fn constant(value: &Expr) -> Tokens {
    let is_number = |e: &Expr| matches!(e, Expr::Lit(ExprLit { lit: Lit::Int(_), .. }));
    match value {
        Expr::Lit(ExprLit { lit: Lit::Bool(_), .. }) => quote!(::basalt_api::Const::Bool(#value)),
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => quote!(::basalt_api::Const::Str(#value)),
        Expr::Unary(minus) if matches!(minus.op, UnOp::Neg(_)) && is_number(&minus.expr) => {
            quote!(::basalt_api::Const::Int(#value))
        }
        e if is_number(e) => quote!(::basalt_api::Const::Int(#value)),
        word => quote!(::basalt_api::Const::Str(#word.as_str())),
    }
}

/// The fields as an enumeration for users: "`a`, `b` or `c`". `None` for no field.
fn alternatives(fields: &[String]) -> Option<String> {
    let quoted: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    let (last, others) = quoted.split_last()?;
    Some(if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) })
}

/// True if `ty` is a primitive type. Only their names begin in lower case.
fn is_primitive(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path
        .segments
        .last()
        .is_some_and(|s| s.ident.to_string().starts_with(|c: char| c.is_ascii_lowercase()))
}

pub(crate) fn shape(ty: &Type) -> (Shape, Option<Type>) {
    let Type::Path(path) = ty else { return (Shape::Plain, None) };
    let Some(last) = path.path.segments.last() else { return (Shape::Plain, None) };
    match last.ident.to_string().as_str() {
        "Option" => {
            let PathArguments::AngleBracketed(args) = &last.arguments else { return (Shape::Plain, None) };
            match args.args.first() {
                Some(GenericArgument::Type(inner)) => (Shape::Optional, Some(inner.clone())),
                _ => (Shape::Plain, None),
            }
        }
        "Vec" | "BTreeSet" | "BTreeMap" => (Shape::Collection, None),
        _ => (Shape::Plain, None),
    }
}

/// The `///` text with its lines joined.
pub(crate) fn doc(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter(|a| a.path().is_ident("doc")).filter_map(|a| match &a.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}
