//! A provider's documentation as Markdown, in the layout that Terraform's registry reads.
//!
//! | file | page |
//! | --- | --- |
//! | `index.md` | the provider |
//! | `resources/NAME.md`, `data-sources/NAME.md` | a type, named without the provider's prefix |
//! | `ephemeral-resources/NAME.md` | an ephemeral resource |
//! | `list-resources/NAME.md`, `actions/NAME.md` | a list resource, an action |
//! | `functions/NAME.md` | a function |
//!
//! Everything but the examples follows from the schemas. A test of the provider compares the pages with those that are
//! checked in.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::function::{Parameter, Signature};
use crate::identity::Identity;
use crate::provider::Provider;
use crate::rule;
use crate::schema::{Attribute, Mode, Nesting, Schema, Shape};
use crate::types::Type;

/// The subject of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The provider as a whole.
    Provider,
    /// A resource, by the type's whole name.
    Resource(&'a str),
    /// A data source, by the type's whole name.
    DataSource(&'a str),
    /// An ephemeral resource, by the type's whole name.
    Ephemeral(&'a str),
    /// A list resource, by the type's whole name.
    ListResource(&'a str),
    /// An action, by the type's whole name.
    Action(&'a str),
    /// A function, by its name.
    Function(&'a str),
}

/// Texts about a subject that its schema does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// A configuration that uses it.
    pub usage: Option<String>,
    /// Arguments of `terraform import`, one for each way to name an object.
    pub import: Vec<String>,
    /// The registry's subcategory; empty if there is none.
    pub subcategory: String,
    /// The reason why the subject has no effect yet. It gets a heading of its own, before the example.
    pub not_yet: Option<String>,
}

/// The pages, by file. `name` is the prefix of the types: `pets` of `pets_cat`.
pub fn pages(
    provider: &dyn Provider,
    name: &str,
    example: impl Fn(Subject<'_>) -> Example,
) -> BTreeMap<String, String> {
    let short = |type_name: &str| {
        let rest = type_name.strip_prefix(name).and_then(|rest| rest.strip_prefix('_'));
        rest.unwrap_or(type_name).to_owned()
    };
    let mut pages = BTreeMap::new();
    let (title, of_index) = (format!("{name} Provider"), example(Subject::Provider));
    let index = Page::new(&title, &title, &provider.schema().description, &of_index)
        .usage(&of_index)
        .schema(&provider.schema());
    pages.insert("index.md".to_owned(), index.0);
    for resource in provider.resources() {
        let (of, schema) = (resource.type_name(), resource.schema());
        let example = example(Subject::Resource(of));
        let (title, heading) = (format!("{of} Resource - {name}"), format!("{of} (Resource)"));
        let page = Page::new(&title, &heading, &schema.description, &example)
            .usage(&example)
            .schema(schema)
            .import(of, &example)
            .identity(of, &resource.identity(), schema);
        pages.insert(format!("resources/{}.md", short(of)), page.0);
    }
    let mut add = |folder: &str, sort: &str, of: &str, schema: &Schema, example: &Example| {
        let title = format!("{of} {sort} - {name}");
        let page = Page::new(&title, &format!("{of} ({sort})"), &schema.description, example);
        pages.insert(format!("{folder}/{}.md", short(of)), page.usage(example).schema(schema).0);
    };
    for it in provider.data_sources() {
        let of = it.type_name();
        add("data-sources", "Data Source", of, it.schema(), &example(Subject::DataSource(of)));
    }
    for it in provider.ephemerals() {
        let of = it.type_name();
        add("ephemeral-resources", "Ephemeral Resource", of, it.schema(), &example(Subject::Ephemeral(of)));
    }
    for it in provider.list_resources() {
        let of = it.type_name();
        add("list-resources", "List Resource", of, it.schema(), &example(Subject::ListResource(of)));
    }
    for it in provider.actions() {
        let of = it.type_name();
        add("actions", "Action", of, it.schema(), &example(Subject::Action(of)));
    }
    for function in provider.functions() {
        let (of, signature) = (function.name(), function.signature());
        let (title, heading) = (format!("{of} function - {name}"), format!("function: {of}"));
        let example = example(Subject::Function(of));
        let page = Page::new(&title, &heading, &signature.description, &example)
            .usage(&example)
            .signature(of, &signature);
        pages.insert(format!("functions/{of}.md"), page.0);
    }
    pages
}

/// A page that is being written.
struct Page(String);

impl Page {
    fn new(title: &str, heading: &str, description: &str, example: &Example) -> Self {
        let subcategory = &example.subcategory;
        let summary = description.split("\n\n").next().unwrap_or_default().replace('\n', "\n  ");
        Self(format!(
            "---\npage_title: {title:?}\nsubcategory: {subcategory:?}\ndescription: |-\n  {summary}\n---\n\n# {heading}\n\n{description}\n"
        ))
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn usage(mut self, example: &Example) -> Self {
        if let Some(not_yet) = &example.not_yet {
            self.line(format_args!("\n## Not yet\n\n{not_yet}"));
        }
        if let Some(usage) = &example.usage {
            self.line(format_args!("\n## Example Usage\n\n```terraform\n{}\n```", usage.trim_end()));
        }
        self
    }

    fn import(mut self, type_name: &str, example: &Example) -> Self {
        if !example.import.is_empty() {
            self.line(format_args!("\n## Import\n\n```shell"));
            for id in &example.import {
                self.line(format_args!("terraform import {type_name}.example {id}"));
            }
            self.line(format_args!("```"));
        }
        self
    }

    /// The section about an import by identity.
    fn identity(mut self, type_name: &str, identity: &Identity, schema: &Schema) -> Self {
        if !identity.is_empty() {
            let sent = identity.to_pb(schema).identity_attributes;
            self.line(format_args!(
                "\nBy its identity (Terraform 1.12 and later):\n\n```terraform\nimport {{"
            ));
            self.line(format_args!("  to = {type_name}.example\n  identity = {{"));
            for attribute in sent.iter().filter(|attribute| attribute.required_for_import) {
                self.line(format_args!("    {} = \"{}\"", attribute.name, attribute.name.to_uppercase()));
            }
            self.line(format_args!("  }}\n}}\n```"));
        }
        self
    }

    fn schema(mut self, schema: &Schema) -> Self {
        if let Some(why) = &schema.deprecated {
            self.line(format_args!("\n~> **Deprecated:** {}", why.replace('\n', " ")));
        }
        self.line(format_args!("\n## Schema"));
        for (title, modes) in GROUPS {
            self.group(&format!("\n### {title}\n"), modes, &schema.attributes, "");
        }
        self.nested(&schema.attributes, "");
        self
    }

    fn group(&mut self, heading: &str, modes: &[Mode], attributes: &[Attribute], within: &str) {
        let mut of_group = attributes.iter().filter(|attribute| modes.contains(&attribute.mode)).peekable();
        if of_group.peek().is_some() {
            self.line(format_args!("{heading}"));
        }
        for attribute in of_group {
            let below = match attribute.shape {
                Shape::Nested(..) => {
                    format!(" (see [below](#{}))", anchor(&join(within, &attribute.name)))
                }
                Shape::Plain(_) => String::new(),
            };
            let mut doc = attribute.description.replace('\n', " ");
            for check in &attribute.checks {
                doc += &format!(" Must be {}.", check.want());
            }
            for sentence in rule::sentences(&attribute.name, attributes) {
                doc += &format!(" {sentence}");
            }
            if let Some(why) = &attribute.deprecated {
                doc += &format!(" **Deprecated:** {}", why.replace('\n', " "));
            }
            self.line(format_args!("- `{}` ({}) {doc}{below}", attribute.name, what(attribute)));
        }
    }

    fn nested(&mut self, attributes: &[Attribute], within: &str) {
        for attribute in attributes {
            let Shape::Nested(_, children) = &attribute.shape else { continue };
            let path = join(within, &attribute.name);
            self.line(format_args!("\n<a id=\"{}\"></a>\n### Nested Schema for `{path}`", anchor(&path)));
            for (title, modes) in GROUPS {
                self.group(&format!("\n{title}:\n"), modes, children, &path);
            }
            self.nested(children, &path);
        }
    }

    fn signature(mut self, name: &str, signature: &Signature) -> Self {
        let one = |parameter: &Parameter| format!("{} {}", parameter.name, of(&parameter.of).to_lowercase());
        let mut taken: Vec<_> = signature.parameters.iter().map(one).collect();
        taken.extend(signature.rest.as_ref().map(|rest| format!("{}...", one(rest))));
        let given = of(&signature.returns).to_lowercase();
        self.line(format_args!("\n## Signature\n\n```text\n{name}({}) {given}\n```", taken.join(", ")));
        self.line(format_args!("\n## Arguments\n"));
        for (i, parameter) in signature.parameters.iter().chain(&signature.rest).enumerate() {
            let rest = if i < signature.parameters.len() { "" } else { ", Variadic" };
            let (name, of, doc) = (&parameter.name, of(&parameter.of), &parameter.description);
            self.line(format_args!("{}. `{name}` ({of}{rest}) {doc}", i + 1));
        }
        self
    }
}

/// The groups in the registry's order.
const GROUPS: [(&str, &[Mode]); 3] = [
    ("Required", &[Mode::Required]),
    ("Optional", &[Mode::Optional, Mode::OptionalComputed]),
    ("Read-Only", &[Mode::Computed]),
];

fn join(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") }
}

fn anchor(path: &str) -> String {
    format!("nestedatt--{}", path.replace('.', "--"))
}

/// The type of an attribute, in the registry's words.
fn what(attribute: &Attribute) -> String {
    let mut what = match &attribute.shape {
        Shape::Plain(plain) => of(plain),
        Shape::Nested(Nesting::Single, _) => "Attributes".to_owned(),
        Shape::Nested(Nesting::List, _) => "Attributes List".to_owned(),
        Shape::Nested(Nesting::Set, _) => "Attributes Set".to_owned(),
        Shape::Nested(Nesting::Map, _) => "Attributes Map".to_owned(),
    };
    for (is_so, word) in [
        (attribute.sensitive, ", Sensitive"),
        (attribute.write_only, ", Write-only"),
        (attribute.deprecated.is_some(), ", Deprecated"),
    ] {
        if is_so {
            what.push_str(word);
        }
    }
    what
}

fn of(plain: &Type) -> String {
    match plain {
        Type::Bool => "Boolean".to_owned(),
        Type::Number => "Number".to_owned(),
        Type::String => "String".to_owned(),
        Type::List(element) => format!("List of {}", of(element)),
        Type::Set(element) => format!("Set of {}", of(element)),
        Type::Map(element) => format!("Map of {}", of(element)),
        Type::Object(_) => "Object".to_owned(),
        Type::Tuple(_) => "Tuple".to_owned(),
        Type::Dynamic => "Dynamic".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_sections_of_the_registry_in_its_order() {
        let collar = vec![
            Attribute::required("colour", Type::String).doc("Its colour."),
            Attribute::optional("key_wo", Type::String).write_only().doc("Of its lock."),
        ];
        let schema = Schema {
            description: "A pet.\n\nOr two.".to_owned(),
            deprecated: Some("Use an animal.".to_owned()),
            attributes: vec![
                Attribute::computed("uid", Type::String).doc("Its identity."),
                Attribute::required("name", Type::String).doc("Its name."),
                Attribute::optional("chip", Type::String)
                    .doc("Its number.")
                    .deprecated("Use `uid`.")
                    .conflicts_with(["collars"]),
                Attribute::nested("collars", Mode::Optional, Nesting::Map, collar).doc("By size."),
            ],
            ..Schema::default()
        };
        let example = Example {
            usage: Some("resource \"pet\" \"x\" {}\n".to_owned()),
            import: vec!["rex".to_owned()],
            subcategory: "Pets".to_owned(),
            not_yet: Some("Nobody feeds it.".to_owned()),
        };
        let page = Page::new("pet Resource - pets", "pet (Resource)", &schema.description, &example)
            .usage(&example)
            .schema(&schema)
            .import("pet", &example)
            .identity("pet", &Identity::default().required("uid").optional("name"), &schema);
        let want = r#"---
page_title: "pet Resource - pets"
subcategory: "Pets"
description: |-
  A pet.
---

# pet (Resource)

A pet.

Or two.

## Not yet

Nobody feeds it.

## Example Usage

```terraform
resource "pet" "x" {}
```

~> **Deprecated:** Use an animal.

## Schema

### Required

- `name` (String) Its name.

### Optional

- `chip` (String, Deprecated) Its number. Conflicts with `collars`. **Deprecated:** Use `uid`.
- `collars` (Attributes Map) By size. Conflicts with `chip`. (see [below](#nestedatt--collars))

### Read-Only

- `uid` (String) Its identity.

<a id="nestedatt--collars"></a>
### Nested Schema for `collars`

Required:

- `colour` (String) Its colour.

Optional:

- `key_wo` (String, Write-only) Of its lock.

## Import

```shell
terraform import pet.example rex
```

By its identity (Terraform 1.12 and later):

```terraform
import {
  to = pet.example
  identity = {
    uid = "UID"
  }
}
```
"#;
        assert_eq!(page.0, want);
    }

    #[test]
    fn a_function_shows_how_it_is_called() {
        let signature = Signature {
            summary: "Calls".to_owned(),
            description: "Calls pets.".to_owned(),
            parameters: vec![Parameter::new("loud", Type::Bool, "How.")],
            rest: Some(Parameter::new("names", Type::String, "Whom.")),
            returns: Type::list(Type::String),
            deprecated: None,
        };
        let page =
            Page::new("call function - pets", "function: call", &signature.description, &Example::default());
        let page = page.signature("call", &signature).0;
        assert!(page.contains("call(loud boolean, names string...) list of string\n"), "{page}");
        assert!(page.ends_with("1. `loud` (Boolean) How.\n2. `names` (String, Variadic) Whom.\n"), "{page}");
    }
}
