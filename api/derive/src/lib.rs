//! Derives a kind's description from its Rust type.
//!
//! `#[derive(Model)]` on a struct generates:
//! - its `Schema`, from the types, `///` comments and `#[field(…)]` attributes of its fields;
//! - `Serialize` and `Deserialize`. Null counts as absent and constant defaults are filled in. Unknown fields are ignored here and refused
//!   by validation;
//! - `Default` or, with required fields, `new(required fields…)`.
//!
//! `#[derive(Model)]` on an enum without data generates its word list, `as_str`, `Display`, `FromStr` and serde as a string.
//!
//! ## `#[field(…)]`
//!
//! | word | meaning |
//! | --- | --- |
//! | `default = 1500`, `default = Mode::Auto`, `default = "10m"` | the value of an absent field |
//! | `default` | an absent field has the empty value of its type (always so for collections) |
//! | `server_chosen` | absent in a spec: the region picks one |
//! | `immutable` | set at creation; a change is a replacement |
//! | `none`, `live`, `reboot`, `redeploy`, `replace` | the effect of a change (default: `live`) |
//! | `sensitive` | not shown by tools, but stored and compared |
//! | `sent_to(address, port)` | a secret: the fields beside it that decide where it is sent; when one of them changes, the client must send the secret again |
//! | `sent_nowhere` | a secret that never leaves the region |
//! | `volatile` | a status field that changes by itself: not part of Terraform's state |
//! | `text` | several lines |
//! | `dormant = "why"`, `dormant(word = "why")` | nothing acts on it, or on that word of its enum, yet |
//! | `min = 1, max = 4094` | bounds of an integer |
//! | `name = "…"` | the name on the wire, for fields and for words of an enum |
//! | `flatten` | the fields of that struct come first, in the same object |

mod input;
mod shape;
mod words;

use input::{FieldInput, Shape};
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields, parse_macro_input};

/// Implements `Model` for a struct, or a word list for an enum. See the crate's documentation.
#[proc_macro_derive(Model, attributes(field))]
pub fn derive_model(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let expanded = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => model(&input, named),
            _ => Err(syn::Error::new_spanned(&input, "Model needs named fields")),
        },
        Data::Enum(data) => words::words(&input, data),
        Data::Union(_) => Err(syn::Error::new_spanned(&input, "Model is for structs and enums")),
    };
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `Shape`: the schema of a request or an answer. See the module `shape`.
#[proc_macro_derive(Shape, attributes(serde))]
pub fn derive_shape(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    shape::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn model(input: &DeriveInput, named: &syn::FieldsNamed) -> syn::Result<Tokens> {
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(&input.generics, "a Model has no type parameters"));
    }
    let fields = named.named.iter().map(FieldInput::parse).collect::<syn::Result<Vec<_>>>()?;
    let schema = schema(input, &fields);
    let serde = serde(input, &fields);
    let make = constructors(input, &fields);
    Ok(quote! { #schema #serde #make })
}

/// The static description.
fn schema(input: &DeriveInput, fields: &[FieldInput]) -> Tokens {
    let ident = &input.ident;
    let name = ident.to_string();
    let doc = input::doc(&input.attrs);
    let own = fields.iter().filter(|f| !f.flatten).map(|f| {
        let FieldInput { wire, doc, ty, sensitive, immutable, .. } = f;
        let kind = match (&f.bounds, f.text) {
            (Some((min, max)), _) => quote!(::basalt_api::Type::Int { min: #min, max: #max }),
            (None, true) => quote!(::basalt_api::Type::Text),
            (None, false) => quote!(<#ty as ::basalt_api::Described>::TYPE),
        };
        let presence = f.presence();
        let effect = format_ident!("{}", f.effect);
        let stability = format_ident!("{}", if f.volatile { "Volatile" } else { "Stable" });
        let dormant = f.dormant.iter().map(|d| {
            let because = &d.because;
            let word = d.word.as_ref().map_or_else(|| quote!(None), |word| quote!(Some(#word)));
            quote!(::basalt_api::Dormant { word: #word, because: #because })
        });
        let destination = match &f.destination {
            Some(fields) => quote!(Some(&[#(#fields),*])),
            None => quote!(None),
        };
        quote! {
            ::basalt_api::Field {
                name: #wire, doc: #doc, ty: #kind, presence: #presence,
                effect: ::basalt_api::Effect::#effect, immutable: #immutable, sensitive: #sensitive,
                destination: #destination,
                stability: ::basalt_api::Stability::#stability, dormant: &[#(#dormant),*],
            }
        }
    });
    let own = quote!(&[#(#own),*]);
    let all = match fields.iter().find(|f| f.flatten) {
        None => own,
        Some(base) => {
            let base = &base.ty;
            quote! {{
                const BASE: &[::basalt_api::Field] = <#base as ::basalt_api::Model>::SCHEMA.fields;
                const OWN: &[::basalt_api::Field] = #own;
                const ALL: [::basalt_api::Field; BASE.len() + OWN.len()] = ::basalt_api::__private::join(BASE, OWN);
                &ALL
            }}
        }
    };
    quote! {
        impl ::basalt_api::Model for #ident {
            const SCHEMA: &'static ::basalt_api::Schema =
                &::basalt_api::Schema { name: #name, doc: #doc, fields: #all };
        }
        impl ::basalt_api::Described for #ident {
            const TYPE: ::basalt_api::Type =
                ::basalt_api::Type::Object(<#ident as ::basalt_api::Model>::SCHEMA);
        }
    }
}

/// `Serialize` and `Deserialize`, through a shadow struct in which every field is optional.
fn serde(input: &DeriveInput, fields: &[FieldInput]) -> Tokens {
    let ident = &input.ident;
    let name = ident.to_string();
    let read_fields = fields.iter().map(|f| {
        let FieldInput { ident, wire, ty, .. } = f;
        match (f.flatten, f.shape) {
            (true, _) => quote!(#[serde(flatten)] #ident: #ty),
            (_, Shape::Optional) => quote!(#[serde(rename = #wire, default)] #ident: #ty),
            _ => quote!(#[serde(rename = #wire, default)] #ident: ::core::option::Option<#ty>),
        }
    });
    let read = fields.iter().map(|f| {
        let FieldInput { ident, wire, .. } = f;
        if f.flatten || f.shape == Shape::Optional {
            return quote!(#ident: shadow.#ident);
        }
        match f.default_value() {
            Some(value) => quote!(#ident: match shadow.#ident { Some(v) => v, None => #value }),
            None => quote! {
                #ident: match shadow.#ident {
                    Some(v) => v,
                    None => return Err(<D::Error as serde::de::Error>::missing_field(#wire)),
                }
            },
        }
    });
    let write_fields = fields.iter().map(|f| {
        let FieldInput { ident, wire, ty, .. } = f;
        if f.flatten {
            return quote!(#[serde(flatten)] #ident: &'a #ty);
        }
        let inner = f.inner.as_ref().unwrap_or(ty);
        quote! {
            #[serde(rename = #wire, skip_serializing_if = "::core::option::Option::is_none")]
            #ident: ::core::option::Option<&'a #inner>
        }
    });
    let write = fields.iter().map(|f| {
        let ident = &f.ident;
        if f.flatten {
            return quote!(#ident: &self.#ident);
        }
        match f.shape {
            Shape::Optional => quote!(#ident: self.#ident.as_ref()),
            Shape::Collection => {
                quote!(#ident: if self.#ident.is_empty() { None } else { Some(&self.#ident) })
            }
            Shape::Plain => quote!(#ident: Some(&self.#ident)),
        }
    });
    quote! {
        const _: () = {
            use ::basalt_api::__private::serde;

            #[derive(serde::Deserialize)]
            #[serde(crate = "serde", rename = #name)]
            struct Shadow { #(#read_fields),* }

            impl<'de> serde::Deserialize<'de> for #ident {
                fn deserialize<D: serde::Deserializer<'de>>(from: D) -> ::core::result::Result<Self, D::Error> {
                    let shadow = <Shadow as serde::Deserialize>::deserialize(from)?;
                    Ok(Self { #(#read),* })
                }
            }

            #[derive(serde::Serialize)]
            #[serde(crate = "serde", rename = #name)]
            struct View<'a> { #(#write_fields),* }

            impl serde::Serialize for #ident {
                fn serialize<S: serde::Serializer>(&self, to: S) -> ::core::result::Result<S::Ok, S::Error> {
                    serde::Serialize::serialize(&View { #(#write),* }, to)
                }
            }
        };
    }
}

/// `Default`, or `new` with the required fields.
fn constructors(input: &DeriveInput, fields: &[FieldInput]) -> Tokens {
    let ident = &input.ident;
    let is_required = |f: &&FieldInput| f.default_value().is_none();
    let set = fields.iter().map(|f| {
        let ident = &f.ident;
        f.default_value().map_or_else(|| quote!(#ident), |value| quote!(#ident: #value))
    });
    let required: Vec<_> = fields.iter().filter(is_required).collect();
    if required.is_empty() {
        return quote! {
            impl ::core::default::Default for #ident {
                fn default() -> Self { Self { #(#set),* } }
            }
        };
    }
    let args = required.iter().map(|f| {
        let FieldInput { ident, ty, .. } = f;
        quote!(#ident: #ty)
    });
    quote! {
        impl #ident {
            /// With the required fields, and everything else at its default.
            #[must_use]
            #[allow(clippy::too_many_arguments)]
            pub fn new(#(#args),*) -> Self { Self { #(#set),* } }
        }
    }
}
