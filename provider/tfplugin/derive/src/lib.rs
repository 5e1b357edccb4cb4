//! `#[derive(Model)]` implements `tfplugin::Model` for a struct: its schema for Terraform, and the conversion from a
//! value and back. Documentation comments become descriptions; the type of a field becomes the type of its attribute.
//!
//! ## `#[tf(…)]` of a field
//!
//! | word | meaning |
//! | --- | --- |
//! | `required` | the configuration must have it |
//! | `optional` | the configuration may have it; otherwise it is null, so the type must be `Option<…>` or `Tf<…>` |
//! | `computed` | the provider gives the value; together with `optional`, only if the configuration does not |
//! | `default = "x"` | the value if the configuration has none: a literal, or another value of the field's type |
//! | `replace` | a change replaces the resource |
//! | `use_state` | an update does not change this computed value |
//! | `sensitive` | shown neither in plans nor in errors |
//! | `write_only` | only in the configuration; null everywhere else |
//! | `deprecated = "Use x."` | Terraform shows this text as a warning when the attribute is given |
//! | `semantics = Semantics::Mac` | the rule for equal spellings, if the type does not imply one |
//! | `check = Check::between(1..=9)` | a check of the value beyond its type; may occur several times |
//! | `conflicts_with = ["x"]` | if it is given, none of these attributes may be given |
//! | `required_with = ["x"]` | if it is given, all of these attributes must be given |
//! | `exactly_one_of = ["x"]`, `at_least_one_of = ["x"]` | exactly one, or at least one, of it and these attributes is given |
//! | `nested` | a model, or a `Vec`, a `BTreeSet` or a `BTreeMap` of them, whose fields are attributes of their own |
//! | `name = "type"` | the attribute's name, if it differs from the field's |
//!
//! ## `#[tf(…)]` of the struct
//!
//! | word | meaning |
//! | --- | --- |
//! | `version = 2` | the schema's version |
//! | `deprecated = "Use x."` | Terraform shows this text as a warning when the resource is used |

mod input;

use input::{FieldInput, ModelInput};
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, parse_macro_input};

/// See the crate's documentation for the words of `#[tf(…)]`.
#[proc_macro_derive(Model, attributes(tf))]
pub fn derive_model(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let model = ModelInput::parse(&input).map(|model| expand(&model));
    model.unwrap_or_else(syn::Error::into_compile_error).into()
}

fn expand(model: &ModelInput) -> Tokens {
    let ModelInput { ident, doc, version, fields, deprecated } = model;
    let deprecated = match deprecated {
        Some(why) => quote!(::core::option::Option::Some(::core::convert::Into::into(#why))),
        None => quote!(::core::option::Option::None),
    };
    let idents: Vec<_> = fields.iter().map(|field| &field.ident).collect();
    let names: Vec<_> = fields.iter().map(|field| &field.name).collect();
    let types = fields.iter().map(|field| &field.ty);
    let secrets = fields.iter().map(|field| field.sensitive || field.write_only);
    let attributes = fields.iter().map(attribute);
    let absences = fields.iter().map(absence);
    let of_fields = fields.iter().map(|field| {
        let (ty, is_said) = (&field.ty, field.says_more());
        quote!(#is_said || <#ty as ::tfplugin::Typed>::IS_SPELLED || <#ty as ::tfplugin::Typed>::SAYS_MORE)
    });
    quote! {
        impl ::tfplugin::Model for #ident {
            const SAYS_MORE: bool = #(#of_fields)||*;
            fn schema() -> ::tfplugin::Schema {
                ::tfplugin::Schema {
                    version: #version,
                    description: ::core::convert::Into::into(#doc),
                    deprecated: #deprecated,
                    attributes: ::std::vec![#(#attributes),*],
                }
            }
            fn from_val_at(
                val: &::tfplugin::Val,
                at: &::tfplugin::Path,
            ) -> ::core::result::Result<Self, ::tfplugin::Diags> {
                let mut __object = ::tfplugin::__private::Reader::new(val, at)?;
                // All fields are read first, so that all errors are reported at once.
                let (#(::core::option::Option::Some(#idents),)*) =
                    (#(__object.attribute::<#types>(#names, #secrets),)*)
                else {
                    return ::core::result::Result::Err(__object.wrong());
                };
                ::core::result::Result::Ok(Self { #(#idents),* })
            }
            fn to_val(&self) -> ::tfplugin::Val {
                ::tfplugin::Val::from([#((#names, ::tfplugin::Typed::write(&self.#idents))),*])
            }
        }
        #(#absences)*
    }
}

/// The `Attribute` expression.
fn attribute(field: &FieldInput) -> Tokens {
    let FieldInput { name, doc, ty, mode, .. } = field;
    let made = if field.nested {
        quote_spanned! {ty.span()=>
            ::tfplugin::Attribute::nested(
                #name, ::tfplugin::Mode::#mode, <#ty as ::tfplugin::Nested>::NESTING,
                <<#ty as ::tfplugin::Nested>::Of as ::tfplugin::Model>::schema().attributes,
            )
        }
    } else {
        let semantics = match &field.semantics {
            Some(semantics) => quote!(#semantics),
            None => quote!(<#ty as ::tfplugin::Typed>::semantics()),
        };
        quote! {
            ::tfplugin::Attribute::plain(#name, ::tfplugin::Mode::#mode, <#ty as ::tfplugin::Typed>::of())
                .semantics(#semantics)
        }
    };
    let default = field.default.as_ref().map(|value| {
        let value = input::default_value(value);
        quote!(.default(#value))
    });
    let checks = &field.checks;
    let rules = field.rules.iter().map(|(method, others)| quote!(.#method(#others)));
    let deprecated = field.deprecated.as_ref().map(|why| quote!(.deprecated(#why)));
    let words = [
        (field.replace, quote!(.replace())),
        (field.use_state, quote!(.use_state())),
        (field.sensitive, quote!(.sensitive())),
        (field.write_only, quote!(.write_only())),
    ];
    let words = words.iter().filter(|(said, _)| *said).map(|(_, call)| call);
    quote!(#made.doc(#doc)#default #(.check(#checks))* #(#rules)* #deprecated #(#words)*)
}

/// Code that fails to compile if the attribute can be null and its type cannot, or if the type does not fit the words.
fn absence(field: &FieldInput) -> Tokens {
    let FieldInput { name, ty, nested, .. } = field;
    let needs_not = !field.may_be_absent();
    let why = format!("`{name}` can be null: its type is to be Option<…> or Tf<…>");
    let lost = format!("`{name}` is `nested`, or what its attributes say beside their types is lost");
    quote_spanned! {ty.span()=>
        const _: () = ::core::assert!(<#ty as ::tfplugin::Typed>::NULLABLE || #needs_not, #why);
        const _: () = ::core::assert!(#nested || !<#ty as ::tfplugin::Typed>::SAYS_MORE, #lost);
    }
}
