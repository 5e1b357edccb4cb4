//! Reads the source of a struct: its documentation, its fields, and their `#[tf(…)]` words.

use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::{
    Attribute, Data, DeriveInput, Expr, ExprLit, Fields, Ident, Lit, LitInt, LitStr, Meta, Type, UnOp,
};

/// A struct with `#[derive(Model)]`.
pub(crate) struct ModelInput {
    pub(crate) ident: Ident,
    pub(crate) doc: String,
    pub(crate) version: i64,
    /// The text of the deprecation warning.
    pub(crate) deprecated: Option<Expr>,
    pub(crate) fields: Vec<FieldInput>,
}

impl ModelInput {
    pub(crate) fn parse(input: &DeriveInput) -> syn::Result<Self> {
        let wrong = |why: &str| Err(syn::Error::new_spanned(&input.ident, why));
        if !input.generics.params.is_empty() {
            return Err(syn::Error::new_spanned(&input.generics, "a Model has no parameters"));
        }
        let Data::Struct(data) = &input.data else {
            return wrong("Model is for structs; an enum of words is `Text<…>` of its FromStr and Display");
        };
        let Fields::Named(named) = &data.fields else { return wrong("Model needs named fields") };
        if named.named.is_empty() {
            return wrong("Model needs fields");
        }
        let (mut version, mut deprecated) = (0, None);
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("tf")) {
            attr.parse_nested_meta(|meta| match word(&meta).as_str() {
                "version" => {
                    version = meta.value()?.parse::<LitInt>()?.base10_parse()?;
                    Ok(())
                }
                "deprecated" => {
                    deprecated = Some(meta.value()?.parse()?);
                    Ok(())
                }
                other => Err(meta.error(format!("`{other}` is not a word of #[tf(…)] for a struct"))),
            })?;
        }
        let fields = named.named.iter().map(FieldInput::parse).collect::<syn::Result<Vec<_>>>()?;
        for (i, field) in fields.iter().enumerate() {
            if fields.iter().take(i).any(|other| other.name == field.name) {
                return Err(syn::Error::new_spanned(&field.ident, "there are two attributes of this name"));
            }
        }
        Ok(Self { ident: input.ident.clone(), doc: doc(&input.attrs), version, deprecated, fields })
    }
}

/// The words for rules between attributes.
const RULES: [&str; 4] = ["conflicts_with", "required_with", "exactly_one_of", "at_least_one_of"];

/// One field of the struct.
pub(crate) struct FieldInput {
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) ty: Type,
    /// The variant of `Mode`.
    pub(crate) mode: Ident,
    pub(crate) default: Option<Expr>,
    pub(crate) semantics: Option<Expr>,
    pub(crate) checks: Vec<Expr>,
    /// The rules: the method of `Attribute`, and the names of the other attributes.
    pub(crate) rules: Vec<(Ident, Expr)>,
    pub(crate) nested: bool,
    pub(crate) replace: bool,
    pub(crate) use_state: bool,
    pub(crate) sensitive: bool,
    pub(crate) write_only: bool,
    /// The text of the deprecation warning.
    pub(crate) deprecated: Option<Expr>,
}

impl FieldInput {
    fn parse(field: &syn::Field) -> syn::Result<Self> {
        let ident = field.ident.clone().unwrap_or_else(|| format_ident!("_"));
        let mut this = Self {
            name: ident.unraw().to_string(),
            mode: ident.clone(),
            ident,
            doc: doc(&field.attrs),
            ty: field.ty.clone(),
            default: None,
            semantics: None,
            checks: Vec::new(),
            rules: Vec::new(),
            nested: false,
            replace: false,
            use_state: false,
            sensitive: false,
            write_only: false,
            deprecated: None,
        };
        let (mut required, mut optional, mut computed) = (false, false, false);
        for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("tf")) {
            attr.parse_nested_meta(|meta| {
                let flag = match word(&meta).as_str() {
                    "required" => &mut required,
                    "optional" => &mut optional,
                    "computed" => &mut computed,
                    "nested" => &mut this.nested,
                    "replace" => &mut this.replace,
                    "use_state" => &mut this.use_state,
                    "sensitive" => &mut this.sensitive,
                    "write_only" => &mut this.write_only,
                    "name" => {
                        this.name = meta.value()?.parse::<LitStr>()?.value();
                        return Ok(());
                    }
                    "deprecated" => {
                        this.deprecated = Some(meta.value()?.parse()?);
                        return Ok(());
                    }
                    "default" => {
                        this.default = Some(meta.value()?.parse()?);
                        return Ok(());
                    }
                    "semantics" => {
                        this.semantics = Some(meta.value()?.parse()?);
                        return Ok(());
                    }
                    "check" => {
                        this.checks.push(meta.value()?.parse()?);
                        return Ok(());
                    }
                    rule if RULES.contains(&rule) => {
                        this.rules.push((format_ident!("{rule}"), meta.value()?.parse()?));
                        return Ok(());
                    }
                    other => return Err(meta.error(format!("`{other}` is not a word of #[tf(…)]"))),
                };
                if *flag {
                    return Err(meta.error("this is said twice"));
                }
                *flag = true;
                Ok(())
            })?;
        }
        let wrong = |why: &str| Err(syn::Error::new_spanned(&this.ident, why));
        if this.default.is_some() && !optional {
            return wrong("a default is for what is `optional`");
        }
        let computed = computed || this.default.is_some();
        this.mode = format_ident!(
            "{}",
            match (required, optional, computed) {
                (true, false, false) => "Required",
                (false, true, false) => "Optional",
                (false, true, true) => "OptionalComputed",
                (false, false, true) => "Computed",
                (false, false, false) =>
                    return wrong("who gives the value? Say #[tf(required)], `optional` or `computed`"),
                (true, ..) => return wrong("`required` excludes `optional` and `computed`"),
            }
        );
        if this.write_only && computed {
            return wrong("`write_only` excludes `computed` and a default");
        }
        if !this.checks.is_empty() && this.mode == "Computed" {
            return wrong("a `check` is of what a configuration says, and this is `computed`");
        }
        if !this.rules.is_empty() && this.mode == "Computed" {
            return wrong("what a configuration cannot give demands nothing of other attributes");
        }
        if this.use_state && !computed {
            return wrong("`use_state` is for what is `computed`");
        }
        if this.nested && this.semantics.is_some() {
            return wrong("`semantics` is for text, and this is `nested`");
        }
        Ok(this)
    }

    /// True if the attribute can be null: in a state, or in a configuration that leaves it to the
    /// provider.
    pub(crate) fn may_be_absent(&self) -> bool {
        self.write_only || self.mode == "Optional" || self.mode == "Computed"
    }

    /// True if the attribute has more than a type and "required" or "optional".
    pub(crate) fn says_more(&self) -> bool {
        let of_others = !self.rules.is_empty();
        let of_values = self.default.is_some() || self.semantics.is_some() || !self.checks.is_empty();
        let of_changes = self.replace || self.use_state || self.deprecated.is_some();
        let is_computed = self.mode != "Required" && self.mode != "Optional";
        of_values
            || of_changes
            || of_others
            || is_computed
            || self.sensitive
            || self.write_only
            || self.nested
    }
}

/// The expression of a default, as a `Val`.
pub(crate) fn default_value(value: &Expr) -> Tokens {
    let is = |expr: &Expr, kind: fn(&Lit) -> bool| match expr {
        Expr::Lit(ExprLit { lit, .. }) => kind(lit),
        Expr::Unary(minus) if matches!(minus.op, UnOp::Neg(_)) => {
            matches!(&*minus.expr, Expr::Lit(ExprLit { lit, .. }) if kind(lit))
        }
        _ => false,
    };
    if is(value, |lit| matches!(lit, Lit::Str(_))) {
        quote!(::tfplugin::Val::from(#value))
    } else if is(value, |lit| matches!(lit, Lit::Int(int) if int.suffix().is_empty())) {
        quote!(<i64 as ::tfplugin::Typed>::write(&#value))
    } else if is(value, |lit| matches!(lit, Lit::Float(_))) {
        quote!(<f64 as ::tfplugin::Typed>::write(&#value))
    } else {
        let value = value.to_token_stream();
        quote!(::tfplugin::Typed::write(&(#value)))
    }
}

fn word(meta: &ParseNestedMeta<'_>) -> String {
    meta.path.to_token_stream().to_string()
}

/// The text of the `///` comments: Markdown, line by line.
fn doc(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter(|attr| attr.path().is_ident("doc")).filter_map(|attr| match &attr.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<_> =
        lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler error for this struct.
    fn refusal(model: &str) -> String {
        let input = syn::parse_str(model).expect("Rust");
        ModelInput::parse(&input).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_a_model_is_refused_with_a_reason() {
        for (model, why) in [
            (
                "enum Colour { Red }",
                "Model is for structs; an enum of words is `Text<…>` of its FromStr and Display",
            ),
            ("struct File(String);", "Model needs named fields"),
            ("struct File {}", "Model needs fields"),
            ("struct File<T> { #[tf(required)] path: T }", "a Model has no parameters"),
            ("#[tf(doc = 1)] struct File { path: String }", "`doc` is not a word of #[tf(…)] for a struct"),
            (
                "struct File { path: String }",
                "who gives the value? Say #[tf(required)], `optional` or `computed`",
            ),
            ("struct File { #[tf(needed)] path: String }", "`needed` is not a word of #[tf(…)]"),
            ("struct File { #[tf(required, required)] path: String }", "this is said twice"),
            (
                "struct File { #[tf(required, computed)] path: String }",
                "`required` excludes `optional` and `computed`",
            ),
            ("struct File { #[tf(required, default = 1)] size: i64 }", "a default is for what is `optional`"),
            (
                "struct File { #[tf(optional, default = 1, write_only)] size: i64 }",
                "`write_only` excludes `computed` and a default",
            ),
            (
                "struct File { #[tf(optional, use_state)] id: String }",
                "`use_state` is for what is `computed`",
            ),
            (
                "struct File { #[tf(computed, check = Check::between(1..=9))] size: i64 }",
                "a `check` is of what a configuration says, and this is `computed`",
            ),
            (
                "struct File { #[tf(required, nested, semantics = Semantics::Ip)] owner: Owner }",
                "`semantics` is for text, and this is `nested`",
            ),
            (
                "struct File { #[tf(required)] path: String, #[tf(required, name = \"path\")] at: String }",
                "there are two attributes of this name",
            ),
        ] {
            assert_eq!(refusal(model), why, "{model}");
        }
    }

    #[test]
    fn documentation_keeps_its_lines() {
        let input =
            "/// One\n/// two.\n///\n/// - three\n///   four\nstruct File { #[tf(required)] path: String }";
        let model = ModelInput::parse(&syn::parse_str(input).expect("Rust"));
        let model = model.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.doc, "One\ntwo.\n\n- three\n  four");
    }
}
