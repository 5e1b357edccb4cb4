//! A kind's description as a Terraform schema.

use basalt_api::values::Naming;
use basalt_api::{
    Const, Effect, Field, Kind, Presence, Schema as Described, Semantic, Stability, Type as Kinds,
};
use tfplugin::{Attribute, Mode, Nesting, Schema, Semantics, Type, Val};

use crate::filter;

use super::facts::{Facts, MOVES};
use super::{FIND, LABELS, LABELS_ALL, NAME, READY, STATUS, UID, expression, version, write_only};
use crate::patience;

/// The purpose of the attributes.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Declared by the user.
    Spec,
    /// Read by a data source: a spec that cannot be declared.
    Found,
    /// Reported by Basalt.
    Status(Facts),
}

/// The schema of a kind's resource.
pub(crate) fn resource(kind: &Kind) -> Schema {
    let mut attributes = vec![
        match kind.naming {
            Naming::Label => Attribute::required(NAME, Type::String).doc(
                "Its name: a DNS label, unique among its kind. Another name is a rename, not another object.",
            ),
            Naming::DomainName => Attribute::required(NAME, Type::String)
                .doc("Its name: the domain's, in lower case. Another name is a rename, not another object."),
            Naming::Singleton => Attribute::required(NAME, Type::String)
                .doc("Its name: `default`. There is one object of this kind."),
            Naming::FabricVid => {
                Attribute::computed(NAME, Type::String).doc(
                    "Its name, by which others refer to it: that of its fabric, a full stop and its number, such as `core.7`, or `core.0` for \
                     the untagged network. It is made of `fabric` and `vid`, is never given, and changes with the fabric's name.",
                )
            }
        },
        Attribute::computed(UID, Type::String).use_state().replace().doc("Its identity. It never changes."),
    ];
    attributes.push(Attribute::optional(LABELS, Type::map(Type::String)).doc(
        "Labels, for people and tools to find it by. Those that other tools give it stay and are not shown here.",
    ));
    attributes.push(Attribute::computed(LABELS_ALL, Type::map(Type::String)).doc(
        "The labels that Terraform gives it: `labels`, and those of the provider's `default_labels` that it does not say \
         otherwise.",
    ));
    attributes.extend(fields(kind.spec, Part::Spec));
    attributes.extend(status(kind, Facts::Stable));
    if patience::is_awaited(kind) {
        attributes.push(Attribute::computed(READY, Type::Bool).doc(
            "Whether it was seen to be ready since its last change. While it is not, an apply goes on waiting. An apply ends with a warning \
             where the time is up, where a person has to do something, and where it is interrupted: an error would have Terraform replace what \
             is being made. To have an apply fail, declare a `basalt_wait`, look at this, or set `on_not_ready` of the provider's block.",
        ));
    }
    let timeouts = patience::timeouts(kind).attribute();
    attributes.extend(
        timeouts.map(|it| it.doc("How long to wait. When the time is up the region goes on by itself.")),
    );
    Schema { description: kind.doc.to_owned(), attributes, ..Schema::default() }
}

/// The schema of a kind's data source.
pub(crate) fn data_source(kind: &Kind) -> Schema {
    let name = Attribute::plain(NAME, Mode::OptionalComputed, Type::String)
        .doc(format!("Its name, or `uid:` and its uid. Either this or `{FIND}`."));
    let mut attributes = found(kind, name);
    attributes.push(Attribute::optional(FIND, Type::String).doc(
        "What it alone has, as `FIELD=VALUE`: a field of its spec, or of its status as `status.FIELD=VALUE`; those of an \
         object in it behind a dot. In a list, set or map any element may have it.",
    ));
    Schema { description: kind.doc.to_owned(), attributes, ..Schema::default() }
}

/// The schema of the data source for many objects of a kind.
pub(crate) fn many(kind: &Kind) -> Schema {
    let one = found(kind, Attribute::computed(NAME, Type::String).doc("Its name."));
    let mut attributes = filter::attributes();
    attributes.push(
        Attribute::nested(kind.plural, Mode::Computed, Nesting::Map, one)
            .doc("Those that there are, by name. It is empty where there is none."),
    );
    let description =
        format!("All objects of a kind, or those that fit: `{}`. {}", kind.terraform_name, kind.doc);
    Schema { description, attributes, ..Schema::default() }
}

/// The schema of a query for objects of a kind.
pub(crate) fn query(kind: &Kind) -> Schema {
    let description = format!(
        "Finds objects of a kind, with whatever manages them: `{}`. {}",
        kind.terraform_name, kind.doc
    );
    Schema { description, attributes: filter::attributes(), ..Schema::default() }
}

/// The attributes of an object that a data source reads.
fn found(kind: &Kind, name: Attribute) -> Vec<Attribute> {
    let mut attributes = vec![
        name,
        Attribute::computed(UID, Type::String).doc("Its identity. It never changes."),
        Attribute::computed(LABELS, Type::map(Type::String)).doc("Its labels, whoever gave them."),
    ];
    attributes.extend(fields(kind.spec, Part::Found));
    attributes.extend(status(kind, Facts::of_found(kind)));
    attributes
}

/// The visible part of the status, if there is any.
fn status(kind: &Kind, facts: Facts) -> Option<Attribute> {
    let fields = fields(kind.status, Part::Status(facts));
    let nested = Attribute::nested(STATUS, Mode::Computed, Nesting::Single, fields.clone());
    let doc = match facts {
        Facts::Stable => kind.status.doc.to_owned(),
        _ => format!("{} {MOVES}", kind.status.doc),
    };
    (!fields.is_empty()).then(|| nested.doc(doc))
}

fn fields(described: &'static Described, part: Part) -> Vec<Attribute> {
    described.fields.iter().flat_map(|field| attributes(field, part)).collect()
}

fn attributes(field: &'static Field, part: Part) -> Vec<Attribute> {
    let facts = if let Part::Status(facts) = part { facts } else { Facts::Stable };
    if !facts.has(field) {
        return Vec::new();
    }
    let within = if matches!(part, Part::Status(_)) { Part::Status(facts.within(field)) } else { part };
    if matches!(field.ty, Kinds::Secret) {
        return if part == Part::Spec { secret(field) } else { Vec::new() };
    }
    let mode = match (part, field.presence) {
        (Part::Found | Part::Status(_), _) => Mode::Computed,
        (Part::Spec, Presence::Required) => Mode::Required,
        (Part::Spec, _) => Mode::Optional,
    };
    let mut attribute = match shape(&field.ty, within) {
        Shape::Plain(of, semantics) => Attribute::plain(field.name, mode, of).semantics(semantics),
        Shape::Nested(nesting, children) => Attribute::nested(field.name, mode, nesting, children),
    };
    attribute = attribute.doc(doc(field, part));
    if field.sensitive {
        attribute = attribute.sensitive();
    }
    if part == Part::Spec
        && let Some(default) = default(field, &attribute.value_type())
    {
        attribute = attribute.default(default);
    }
    // A reference may change its name and still mean the same object: the resource compares those
    // itself.
    if part == Part::Spec && is_fixed(field) && !is_fixed_reference(field) {
        attribute = attribute.replace();
    }
    vec![attribute]
}

/// The default of the field, as a whole value of its attribute.
fn default(field: &'static Field, of: &Type) -> Option<Val> {
    let filled = super::value::default(field)?;
    tfplugin::from_json(&tfplugin::to_json(&filled), of).ok()
}

/// True if the field is a reference that must always point to the same object.
pub(crate) fn is_fixed_reference(field: &Field) -> bool {
    is_fixed(field) && matches!(field.ty, Kinds::Ref(_))
}

/// True if a change of the field requires another object.
fn is_fixed(field: &Field) -> bool {
    field.immutable || field.effect == Effect::Replace
}

/// A secret can be given in two ways: plain, which stores it in the state, or write-only, only in
/// the configuration.
fn secret(field: &Field) -> Vec<Attribute> {
    let (name, write_only, version) = (field.name, write_only(field.name), version(field.name));
    vec![
        Attribute::optional(name, Type::String)
            .sensitive()
            .doc(format!("{} It is kept in the state; `{write_only}` is not.", field.doc)),
        Attribute::optional(&write_only, Type::String)
            .write_only()
            .doc(format!("{} It is kept nowhere; raise `{version}` to have it written again.", field.doc)),
        Attribute::optional(&version, Type::Number)
            .doc(format!("Any number. Another one has `{write_only}` written again.")),
    ]
}

enum Shape {
    Plain(Type, Semantics),
    Nested(Nesting, Vec<Attribute>),
}

fn shape(ty: &'static Kinds, part: Part) -> Shape {
    match ty {
        Kinds::Object(described) => Shape::Nested(Nesting::Single, fields(described, part)),
        Kinds::List(item) => match item {
            Kinds::Object(described) => Shape::Nested(Nesting::List, fields(described, part)),
            item => Shape::Plain(Type::list(scalar(item)), semantics(item)),
        },
        Kinds::Set(item) => Shape::Plain(Type::set(scalar(item)), semantics(item)),
        Kinds::Map { value, .. } => match value {
            Kinds::Object(described) => Shape::Nested(Nesting::Map, fields(described, part)),
            value => Shape::Plain(Type::map(scalar(value)), semantics(value)),
        },
        ty => Shape::Plain(scalar(ty), semantics(ty)),
    }
}

fn scalar(ty: &Kinds) -> Type {
    match ty {
        Kinds::Bool => Type::Bool,
        Kinds::Int { .. } => Type::Number,
        _ => Type::String,
    }
}

/// The rule that decides which spellings are equal: the same as Basalt's own.
fn semantics(ty: &Kinds) -> Semantics {
    /// One function per form, as Terraform's side takes no closures with content.
    macro_rules! forms {
        ($semantic:expr, $($form:ident),*) => {
            match $semantic {
                $(Semantic::$form => Semantics::Canonical(|text| Semantic::$form.canonical(text).ok()),)*
            }
        };
    }
    match ty {
        Kinds::Semantic(semantic) => forms!(
            semantic,
            Mac,
            Duid,
            Ip,
            Cidr,
            DnsLabel,
            Hostname,
            Host,
            Tag,
            Duration,
            Sha256,
            Bytes,
            SshPublicKey,
            Uid,
            Timestamp,
            Url,
            Schedule,
            OwnerName
        ),
        _ => Semantics::Exact,
    }
}

/// The description of a field that its reader cannot set.
pub(crate) fn about(field: &Field) -> String {
    doc(field, Part::Found)
}

/// The description, with the field's other properties.
fn doc(field: &Field, part: Part) -> String {
    let mut text = field.doc.replace(expression::ELSEWHERE, &expression::names());
    let mut say = |sentence: String| {
        text.push(' ');
        text.push_str(&sentence);
    };
    match &field.ty {
        Kinds::Enum(words) => say(one_of(words)),
        Kinds::Map { key: Kinds::Enum(words), .. } => say(format!("Keys: {}", one_of(words))),
        Kinds::Ref(kind) | Kinds::List(Kinds::Ref(kind)) | Kinds::Set(Kinds::Ref(kind)) => {
            if let Some(kind) = Kind::find(kind) {
                say(format!("Refers to `{}` by name.", kind.terraform_name));
            }
        }
        Kinds::Semantic(semantic) => say(format!("For example `{}`.", semantic.example())),
        _ => {}
    }
    if matches!(part, Part::Status(_)) && field.stability == Stability::Volatile {
        say("It changes by itself.".to_owned());
    }
    if part != Part::Spec {
        return text;
    }
    match field.presence {
        Presence::Default(Const::Empty) | Presence::Required | Presence::Optional => {}
        Presence::Default(value) => match value.json(&field.ty) {
            serde_json::Value::String(word) => say(format!("Default: `{word}`.")),
            value => say(format!("Default: `{value}`.")),
        },
        Presence::ServerChosen => say("Chosen by Basalt where it is absent.".to_owned()),
    }
    if is_fixed(field) {
        say("A change replaces the object.".to_owned());
    } else {
        match field.effect {
            Effect::Reboot => say("A change takes effect at the next boot.".to_owned()),
            Effect::Redeploy => say("A change needs a new installation.".to_owned()),
            Effect::None | Effect::Live | Effect::Replace => {}
        }
    }
    text
}

fn one_of(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => format!("{last}."),
        Some((last, others)) => format!("{} or {last}.", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tfplugin::Shape as Shaped;

    fn find<'a>(attributes: &'a [Attribute], name: &str) -> &'a Attribute {
        let found = attributes.iter().find(|attribute| attribute.name == name);
        found.unwrap_or_else(|| panic!("no attribute {name}"))
    }

    fn sample() -> Vec<Attribute> {
        resource(Kind::find("Sample").expect("the kind with one of everything")).attributes
    }

    fn children(attribute: &Attribute) -> &[Attribute] {
        match &attribute.shape {
            Shaped::Nested(_, children) => children,
            Shaped::Plain(_) => panic!("{} is not nested", attribute.name),
        }
    }

    #[test]
    fn every_sort_of_field_has_its_sort_of_attribute() {
        let sample = sample();
        assert_eq!(find(&sample, "serial").mode, Mode::Required);
        assert!(find(&sample, "serial").replace, "immutable");
        assert_eq!(find(&sample, "mac").mode, Mode::Optional);
        assert_eq!(find(&sample, "count_wanted").mode, Mode::OptionalComputed);
        assert_eq!(find(&sample, "count_wanted").default, Some(3_i64.into()));
        assert!(find(&sample, "count_wanted").description.ends_with("Default: `3`."));
        assert!(find(&sample, "colour").description.contains("`red` or `dark_green`."));
        assert!(find(&sample, "zone").description.contains("Refers to `basalt_zone` by name."));
        assert!(find(&sample, "script").sensitive);
        assert!(matches!(&find(&sample, "parts").shape, Shaped::Nested(Nesting::Map, _)));
        assert!(matches!(&find(&sample, "detail").shape, Shaped::Nested(Nesting::Single, _)));
        assert_eq!(find(&sample, "macs").value_type(), Type::set(Type::String));
        assert_eq!(find(&sample, "steps").value_type(), Type::list(Type::String));
    }

    #[test]
    fn a_secret_can_be_given_without_being_stored() {
        let sample = sample();
        assert!(find(&sample, "password").sensitive);
        assert!(find(&sample, "password_wo").write_only);
        assert!(!find(&sample, "password_wo_version").sensitive);
        assert!(find(children(find(&sample, "parts")), "key_wo").write_only, "in a map as well");
    }

    #[test]
    fn equal_texts_are_those_that_basalt_takes_for_equal() {
        let sample = sample();
        let same = |name: &str, a: &str, b: &str| find(&sample, name).same(&a.into(), &b.into());
        assert!(same("mac", "52-54-00-AA-00-01", "52:54:00:aa:00:01"));
        assert!(same("patience", "60s", "1m"));
        assert!(!same("serial", "a", "A"));
    }

    #[test]
    fn only_what_is_stable_of_a_status_is_there() {
        let sample = sample();
        let status = children(find(&sample, STATUS));
        let names: Vec<_> = status.iter().map(|attribute| attribute.name.as_str()).collect();
        assert_eq!(names, ["address"]);
    }

    #[test]
    fn what_is_looked_up_tells_facts_where_it_is_read_for_them() {
        let told = |kind: &str| -> Vec<String> {
            let found = data_source(Kind::find(kind).expect("a kind")).attributes;
            children(find(&found, STATUS)).iter().map(|attribute| attribute.name.clone()).collect()
        };
        let discovery = told("Discovery");
        for name in ["mac", "addresses", "vlan", "racks", "first_seen_at", "last_seen_at", "conditions"] {
            assert!(discovery.iter().any(|told| told == name), "{name}: {discovery:?}");
        }
        assert!(!discovery.contains(&"effective".to_owned()), "has no shape");
        assert!(told("Rack").contains(&"services".to_owned()));
        assert_eq!(told("Machine"), ["phase", "tags", "inventory", "power", "addresses", "bmc"]);
        assert_eq!(told("Sample"), ["address"], "what is declared is not read for them");
        let machine = data_source(Kind::find("Machine").expect("a kind")).attributes;
        let status = find(&machine, STATUS);
        assert!(status.description.ends_with(MOVES), "{}", status.description);
        assert!(find(children(status), "phase").description.ends_with("It changes by itself."));
        let resource = resource(Kind::find("Machine").expect("a kind")).attributes;
        let names: Vec<_> = children(find(&resource, STATUS)).iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["inventory", "bmc"], "a state has none of it");
    }

    #[test]
    fn a_vlan_is_named_by_what_it_is() {
        let vlan = resource(Kind::find("Vlan").expect("a kind")).attributes;
        assert_eq!(find(&vlan, NAME).mode, Mode::Computed);
        assert!(!find(&vlan, "fabric").replace, "it may have been renamed");
        assert!(find(&vlan, "vid").replace);
    }

    #[test]
    fn what_takes_long_can_be_given_time() {
        let deployment = resource(Kind::find("Deployment").expect("a kind")).attributes;
        assert_eq!(children(find(&deployment, "timeouts")).len(), 3);
        assert_eq!(find(&deployment, READY).mode, Mode::Computed);
        assert!(sample().iter().all(|attribute| attribute.name != "timeouts"));
    }
}
