//! `#[derive(Model)]` for an enum without data: a closed list of words.

use crate::input::doc;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{DataEnum, DeriveInput, Fields, LitStr, Variant};

pub(crate) fn words(input: &DeriveInput, data: &DataEnum) -> syn::Result<Tokens> {
    let ident = &input.ident;
    let title = ident.to_string();
    let variants: Vec<_> = data.variants.iter().map(|v| &v.ident).collect();
    let words = data.variants.iter().map(word).collect::<syn::Result<Vec<_>>>()?;
    for variant in &data.variants {
        if doc(&variant.attrs).is_empty() {
            return Err(syn::Error::new_spanned(
                variant,
                "a word of a Model needs documentation: users read it",
            ));
        }
    }
    Ok(quote! {
        impl #ident {
            /// Every word, as it stands on the wire.
            pub const WORDS: &'static [&'static str] = &[#(#words),*];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { #(Self::#variants => #words),* }
            }
        }
        impl ::basalt_api::Described for #ident {
            const TYPE: ::basalt_api::Type = ::basalt_api::Type::Enum(#ident::WORDS);
        }
        impl ::core::fmt::Display for #ident {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl ::core::str::FromStr for #ident {
            type Err = ::basalt_api::BadValue;
            fn from_str(text: &str) -> ::core::result::Result<Self, Self::Err> {
                match text {
                    #(#words => Ok(Self::#variants),)*
                    _ => Err(::basalt_api::BadValue::word(#title, text, Self::WORDS)),
                }
            }
        }
        const _: () = {
            use ::basalt_api::__private::serde;
            impl serde::Serialize for #ident {
                fn serialize<S: serde::Serializer>(&self, to: S) -> ::core::result::Result<S::Ok, S::Error> {
                    to.serialize_str(self.as_str())
                }
            }
            impl<'de> serde::Deserialize<'de> for #ident {
                fn deserialize<D: serde::Deserializer<'de>>(from: D) -> ::core::result::Result<Self, D::Error> {
                    ::basalt_api::__private::from_text(from)
                }
            }
        };
    })
}

/// The variant's word: its name in snake case unless `#[field(name = "…")]` says otherwise.
fn word(variant: &Variant) -> syn::Result<String> {
    if !matches!(variant.fields, Fields::Unit) {
        return Err(syn::Error::new_spanned(variant, "a word carries no data: Model has no unions"));
    }
    let mut word = snake(&variant.ident);
    for attr in variant.attrs.iter().filter(|a| a.path().is_ident("field")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("only `name` is meant for a word"));
            }
            word = meta.value()?.parse::<LitStr>()?.value();
            Ok(())
        })?;
    }
    Ok(word)
}

/// The name in snake case.
pub(crate) fn snake(ident: &syn::Ident) -> String {
    let mut word = String::new();
    for c in ident.to_string().chars() {
        if c.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}
