//! `#[derive(Shape)]`: the schema of a request or an answer, from its fields and its serde attributes.
//!
//! | serde | schema |
//! | --- | --- |
//! | `deny_unknown_fields` | a request: no other members, and an `Option` may be null |
//! | `rename = "…"` | the member's name |
//! | `Option`, `skip_serializing_if` | the member may be absent |
//! | `default` in a request | the member may be absent; an answer always has it |
//! | `rename_all = "snake_case"`, `other` on an enum | its words; the word for all others is left out |

use crate::input::{Shape, shape};
use crate::words::snake;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Expr, ExprLit, Fields, Lit, Token};

/// The serde attributes of a type, field or variant: each word, and its text if it has one.
fn serde(attrs: &[Attribute]) -> syn::Result<Vec<(String, Option<String>)>> {
    let mut words = Vec::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        attr.parse_nested_meta(|meta| {
            let text = match meta.input.peek(Token![=]) {
                true => match meta.value()?.parse()? {
                    Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
                    _ => None,
                },
                false => None,
            };
            words.push((meta.path.require_ident()?.to_string(), text));
            Ok(())
        })?;
    }
    Ok(words)
}

pub(crate) fn derive(input: &DeriveInput) -> syn::Result<Tokens> {
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => object(input, named),
            _ => Err(syn::Error::new_spanned(input, "Shape needs named fields")),
        },
        Data::Enum(data) => words(input, data),
        Data::Union(_) => Err(syn::Error::new_spanned(input, "Shape is for structs and enums")),
    }
}

fn object(input: &DeriveInput, named: &syn::FieldsNamed) -> syn::Result<Tokens> {
    let (ident, name) = (&input.ident, input.ident.to_string());
    let is_request = serde(&input.attrs)?.iter().any(|(word, _)| word == "deny_unknown_fields");
    let mut members = Vec::new();
    for field in &named.named {
        let serde = serde(&field.attrs)?;
        let has = |wanted: &str| serde.iter().any(|(word, _)| word == wanted);
        let renamed = serde.iter().find(|(word, _)| word == "rename").and_then(|(_, text)| text.clone());
        let own = field.ident.as_ref().map(|ident| ident.unraw().to_string()).unwrap_or_default();
        let name = renamed.unwrap_or(own);
        let (form, inner) = shape(&field.ty);
        let is_optional = form == Shape::Optional;
        let is_required = !(is_optional || has("skip_serializing_if") || is_request && has("default"));
        let ty = inner.as_ref().unwrap_or(&field.ty);
        let is_nullable = is_request && is_optional;
        members.push(
            quote!((#name, #is_required, #is_nullable, <#ty as ::basalt_api::__private::Shape>::shape())),
        );
    }
    Ok(quote! {
        impl ::basalt_api::__private::Shape for #ident {
            fn shape() -> ::basalt_api::__private::Value {
                ::basalt_api::__private::reference(#name)
            }
        }
        impl ::basalt_api::__private::Component for #ident {
            const NAME: &'static str = #name;
            fn component() -> ::basalt_api::__private::Value {
                ::basalt_api::__private::members(#is_request, [#(#members),*])
            }
        }
    })
}

fn words(input: &DeriveInput, data: &syn::DataEnum) -> syn::Result<Tokens> {
    let ident = &input.ident;
    let mut words = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(syn::Error::new_spanned(variant, "a word carries no data"));
        }
        if !serde(&variant.attrs)?.iter().any(|(word, _)| word == "other") {
            words.push(snake(&variant.ident));
        }
    }
    Ok(quote! {
        impl ::basalt_api::__private::Shape for #ident {
            fn shape() -> ::basalt_api::__private::Value {
                ::basalt_api::__private::one_of(&[#(#words),*])
            }
        }
    })
}
