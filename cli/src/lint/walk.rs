//! Compares values with the shapes of their attributes.
//!
//! Only literal keys are compared. Unknown functions and references are skipped, so that every reported key is one that Terraform drops.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::Kind;
use basalt_api::values::closest;
use hcl_edit::Span;
use hcl_edit::expr::{Expression, Object, ObjectKey, Traversal, TraversalOperator};

use super::module::{File, Module, key_name};
use super::shape::{self, Shape};

/// Functions whose result has the keys of their arguments.
const TRANSPARENT: &[&str] =
    &["coalesce", "concat", "merge", "nonsensitive", "sensitive", "tolist", "tomap", "toset", "try"];

/// Findings by byte offset and text, so that a local value that is used twice is reported once.
pub(super) type Findings = BTreeSet<(usize, String)>;

/// The comparison of one module's values.
pub(super) struct Walk<'a> {
    module: &'a Module,
    /// By path of the file: offset and text of each finding.
    pub(super) findings: BTreeMap<&'a std::path::Path, Findings>,
    /// Names of the local values on the present path. They prevent endless recursion.
    following: Vec<&'a str>,
}

/// The value that is compared.
#[derive(Clone)]
struct Place<'a> {
    file: &'a File,
    /// Like `basalt_deployment.web`.
    block: String,
    /// Like `network.interfaces.eth0`.
    path: String,
}

impl Place<'_> {
    fn below(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, ..self.clone() }
    }
}

impl<'a> Walk<'a> {
    /// Compares resources with the provider's schemas, and values of variables with their types.
    pub(super) fn all(module: &'a Module, called: impl Fn(&str) -> Option<&'a Module>) -> Self {
        let mut walk = Self { module, findings: BTreeMap::new(), following: Vec::new() };
        walk.resources();
        walk.variables();
        walk.calls(called);
        walk
    }

    fn resources(&mut self) {
        for (file, block) in self.module.blocks("resource") {
            let [of, name] = block.labels.as_slice() else { continue };
            let kind = Kind::find(of.as_str()).filter(|kind| kind.terraform_name == of.as_str());
            let Some(kind) = kind.filter(|kind| kind.declarable) else { continue };
            let Shape::Object(attributes) = shape::resource(kind) else { continue };
            let block_name = format!("{}.{}", of.as_str(), name.as_str());
            let place = Place { file, block: block_name, path: String::new() };
            for attribute in block.body.attributes() {
                // Terraform itself refuses an attribute that the resource does not have.
                if let Some(shape) = attributes.get(attribute.key.as_str()) {
                    self.value(&place.below(attribute.key.as_str()), &attribute.value, shape);
                }
            }
        }
    }

    /// Defaults of variables, and values in `*.tfvars`.
    fn variables(&mut self) {
        for (file, block) in self.module.blocks("variable") {
            let (Some(ty), Some(default)) =
                (block.body.get_attribute("type"), block.body.get_attribute("default"))
            else {
                continue;
            };
            let name = block.labels.first().map(|label| label.as_str()).unwrap_or_default();
            let place = Place { file, block: format!("variable {name}"), path: "default".to_owned() };
            self.value(&place, &default.value, &shape::of_type(&ty.value));
        }
        for file in &self.module.values {
            for attribute in file.body.attributes() {
                let name = attribute.key.as_str();
                if let Some(shape) = variable_shape(self.module, name) {
                    let place = Place { file, block: format!("variable {name}"), path: name.to_owned() };
                    self.value(&place, &attribute.value, &shape);
                }
            }
        }
    }

    /// Arguments of modules in the same repository.
    fn calls(&mut self, called: impl Fn(&str) -> Option<&'a Module>) {
        for (file, block) in self.module.blocks("module") {
            let source = block.body.get_attribute("source").and_then(|source| source.value.as_str());
            let Some(module) = source.and_then(&called) else { continue };
            let name = block.labels.first().map(|label| label.as_str()).unwrap_or_default();
            let place = Place { file, block: format!("module.{name}"), path: String::new() };
            for attribute in block.body.attributes() {
                if let Some(shape) = variable_shape(module, attribute.key.as_str()) {
                    self.value(&place.below(attribute.key.as_str()), &attribute.value, &shape);
                }
            }
        }
    }

    fn value(&mut self, place: &Place<'a>, value: &'a Expression, shape: &Shape) {
        if *shape == Shape::Any {
            return;
        }
        match value {
            Expression::Parenthesis(inner) => self.value(place, inner.inner(), shape),
            Expression::Conditional(either) => {
                self.value(place, &either.true_expr, shape);
                self.value(place, &either.false_expr, shape);
            }
            Expression::Object(object) => self.object(place, object, shape),
            Expression::Array(items) => {
                if let Shape::Each(item) = shape {
                    items.iter().for_each(|value| self.value(place, value, item));
                }
            }
            Expression::ForExpr(each) => {
                if let Shape::Each(item) = shape {
                    self.value(place, &each.value_expr, item);
                }
            }
            Expression::FuncCall(call)
                if !call.name.is_namespaced() && TRANSPARENT.contains(&call.name.name.as_str()) =>
            {
                call.args.iter().for_each(|value| self.value(place, value, shape));
            }
            Expression::Traversal(traversal) => self.reference(place, traversal, shape),
            _ => {}
        }
    }

    fn object(&mut self, place: &Place<'a>, object: &'a Object, shape: &Shape) {
        for (key, value) in object.iter() {
            let Some(name) = key_name(key) else { continue };
            match shape {
                Shape::Object(keys) => match keys.get(name) {
                    Some(shape) => self.value(&place.below(name), value.expr(), shape),
                    None => self.unknown(place, key, name, keys),
                },
                Shape::Each(item) => self.value(&place.below(name), value.expr(), item),
                Shape::Any => {}
            }
        }
    }

    /// Compares a reference to `local` or to a variable.
    fn reference(&mut self, place: &Place<'a>, traversal: &'a Traversal, shape: &Shape) {
        let Expression::Variable(root) = &traversal.expr else { return };
        let Some((TraversalOperator::GetAttr(name), rest)) =
            traversal.operators.split_first().map(|(first, rest)| (first.value(), rest))
        else {
            return;
        };
        match (root.as_str(), rest) {
            ("local", rest) => self.local(place, name.as_str(), rest, shape),
            ("var", []) => self.variable(place, name.as_str(), shape),
            _ => {}
        }
    }

    fn local(
        &mut self,
        place: &Place<'a>,
        name: &'a str,
        rest: &'a [hcl_edit::Decorated<TraversalOperator>],
        shape: &Shape,
    ) {
        let Some((file, mut value)) = self.module.local(name) else { return };
        if self.following.contains(&name) {
            return;
        }
        for step in rest {
            let TraversalOperator::GetAttr(key) = step.value() else { return };
            let Expression::Object(object) = value else { return };
            let named = object.iter().find(|(it, _)| key_name(it) == Some(key.as_str()));
            let Some((_, found)) = named else { return };
            value = found.expr();
        }
        self.following.push(name);
        self.value(&Place { file, ..place.clone() }, value, shape);
        self.following.pop();
    }

    /// If a variable has a type, its keys are compared with the attribute's. Otherwise those of its default are.
    fn variable(&mut self, place: &Place<'a>, name: &str, shape: &Shape) {
        let Some((file, block)) = self.module.variable(name) else { return };
        let place = Place { file, ..place.clone() };
        if let Some(ty) = block.body.get_attribute("type") {
            self.variable_type(&place, &ty.value, shape);
        } else if let Some(default) = block.body.get_attribute("default") {
            self.value(&place, &default.value, shape);
        }
    }

    fn variable_type(&mut self, place: &Place<'a>, ty: &'a Expression, shape: &Shape) {
        let Expression::FuncCall(call) = ty else { return };
        match (call.name.name.as_str(), call.args.get(0), shape) {
            ("object", Some(Expression::Object(attributes)), Shape::Object(keys)) => {
                for (key, value) in attributes.iter() {
                    let Some(name) = key_name(key) else { continue };
                    match keys.get(name) {
                        Some(shape) => self.variable_type(&place.below(name), value.expr(), shape),
                        None => self.unknown(place, key, name, keys),
                    }
                }
            }
            ("list" | "set" | "map", Some(ty), Shape::Each(shape)) => self.variable_type(place, ty, shape),
            ("optional", Some(ty), shape) => self.variable_type(place, ty, shape),
            _ => {}
        }
    }

    fn unknown(&mut self, place: &Place<'a>, key: &ObjectKey, name: &str, keys: &BTreeMap<String, Shape>) {
        let span = match key {
            ObjectKey::Ident(name) => name.span(),
            ObjectKey::Expression(expression) => expression.span(),
        };
        let candidates: Vec<_> = keys.keys().map(String::as_str).collect();
        let advice = match closest(name, &candidates) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("it has {}", candidates.join(", ")),
        };
        let text =
            format!("{}: {} has no {name:?}, and Terraform drops it; {advice}", place.block, place.path);
        let found = self.findings.entry(&place.file.path).or_default();
        found.insert((span.map_or(0, |span| span.start), text));
    }
}

/// The shape of a variable's type.
fn variable_shape(module: &Module, name: &str) -> Option<Shape> {
    let (_, block) = module.variable(name)?;
    Some(shape::of_type(&block.body.get_attribute("type")?.value))
}
