//! Counts the steps of an evaluation before it begins. The bytes of its values count as steps.
//!
//! The CEL library has no budget. `+`, lists and loops copy their operands, and a chain of them multiplies: thirteen times `.map(a, a + a +
//! a + a)` makes the text 64 million times as large. So each node gets an upper bound for the size of its value, from the variables
//! upwards:
//!
//! | part | size of its value |
//! | --- | --- |
//! | variable | by its [`Shape`], with the longest list and the longest text of the machine; the list of flags has bounds of its own |
//! | `a + b` | both together |
//! | `c ? a : b` | the larger one |
//! | `[a, b]`, `{k: v}` | all together |
//! | `l.map(a, …)`, `l.filter(a, …)` | the loop's body, as often as the list has elements |
//! | `l[0]`, `a.field`, the variable of a loop | the largest element |
//! | everything else | a number or a truth |
//!
//! The evaluation of a node is a step. Making, copying or comparing [`BYTES_A_STEP`] bytes is also a step. All values that exist at one
//! time were made in steps, so a bound of steps bounds memory as well.

use std::collections::BTreeSet;

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use super::variables::{Shape, VARIABLES};
use crate::kinds::{MAX_FLAG_BYTES, MAX_FLAGS};

/// Copying 64 bytes, with the allocations that the library makes for them, takes about as long as evaluating one part.
pub(super) const BYTES_A_STEP: u64 = 64;
/// A number or a boolean: a box and the pointer to it.
const SCALAR: u64 = 32;
/// A text, list or map without its elements.
const HEAD: u64 = 48;
/// A key of a map, with its slot in the table.
const KEY: u64 = 80;
/// `string(1e-308)` has 310 bytes.
const NUMBER_AS_TEXT: u64 = 400;

/// Size of a machine's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Elements of the longest list.
    pub(super) list: usize,
    /// Bytes of the longest text.
    pub(super) text: usize,
}

/// An upper bound of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of memory, everything inside included.
    pub(super) bytes: u64,
    /// Elements, if it is a list or a map.
    length: u64,
    /// The largest element.
    item: Option<Box<Size>>,
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Size {
    fn scalar() -> Self {
        Self { bytes: SCALAR, length: 0, item: None }
    }

    fn text(bytes: u64) -> Self {
        Self { bytes: HEAD.saturating_add(bytes), ..Self::scalar() }
    }

    /// The bound of a list or map with these elements.
    fn of_items(items: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self { bytes: HEAD, length: 0, item: None };
        for item in items {
            all.bytes = all.bytes.saturating_add(item.bytes);
            all.length = all.length.saturating_add(1);
            all.item = Some(Box::new(match all.item {
                Some(before) => before.or(item),
                None => item,
            }));
        }
        all
    }

    fn of(shape: Shape, limits: &Limits) -> Self {
        match shape {
            Shape::Text => Self::text(wide(limits.text)),
            Shape::Number | Shape::Truth | Shape::Any => Self::scalar(),
            Shape::List(item) => Self::of_items([Self::of(*item, limits)]).times(wide(limits.list)),
            Shape::Flags => Self::of_items([Self::text(wide(MAX_FLAG_BYTES))]).times(wide(MAX_FLAGS)),
            Shape::Fields(fields) => {
                let mut map = Self::of_items(fields.iter().map(|(_, shape)| Self::of(*shape, limits)));
                map.bytes = map.bytes.saturating_add(KEY.saturating_mul(map.length));
                map
            }
        }
    }

    /// The bound of a value that is one of two.
    fn or(self, other: Self) -> Self {
        let item = match (self.item, other.item) {
            (Some(a), Some(b)) => Some(Box::new(a.or(*b))),
            (a, b) => a.or(b),
        };
        Self { bytes: self.bytes.max(other.bytes), length: self.length.max(other.length), item }
    }

    /// The bound of a value that joins two.
    fn and(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        let length = self.length.saturating_add(other.length);
        Self { bytes, length, item: self.or(other).item }
    }

    /// The bound of `count` such values.
    fn times(self, count: u64) -> Self {
        let bytes = self.bytes.saturating_mul(count).saturating_add(HEAD);
        Self { bytes, length: self.length.saturating_mul(count), item: self.item }
    }

    fn largest_item(self) -> Self {
        self.item.map_or_else(Self::scalar, |item| *item)
    }
}

struct Count<'a> {
    limits: &'a Limits,
    /// Variables of the surrounding loops.
    bound: Vec<(&'a str, Size)>,
    /// Number of times that the surrounding loops evaluate this node.
    times: u64,
    steps: u64,
}

/// Upper bounds of the steps of one evaluation and of the size of its value, for a machine within these limits. The expression must have
/// been [walked](super::walk::walk): that bounds its depth.
pub(super) fn count(root: &IdedExpr, used: &BTreeSet<&'static str>, limits: &Limits) -> (u64, Size) {
    let mut count = Count { limits, bound: Vec::new(), times: 1, steps: 0 };
    for name in used {
        // The value is copied from the inventory.
        let size = count.variable(name);
        count.step(size.bytes);
    }
    let size = count.expression(root);
    (count.steps, size)
}

impl<'a> Count<'a> {
    /// Counts the evaluation of a node that makes or compares this many bytes.
    fn step(&mut self, bytes: u64) {
        let steps = bytes.checked_div(BYTES_A_STEP).unwrap_or(0).saturating_add(1);
        self.steps = self.steps.saturating_add(steps.saturating_mul(self.times));
    }

    fn variable(&self, name: &str) -> Size {
        if let Some((_, size)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return size.clone();
        }
        let known = VARIABLES.iter().find(|variable| variable.name == name);
        known.map_or_else(Size::scalar, |variable| Size::of(variable.shape, self.limits))
    }

    fn expression(&mut self, node: &'a IdedExpr) -> Size {
        match &node.expr {
            Expr::Literal(literal) => {
                self.step(0);
                match literal {
                    LiteralValue::String(text) => Size::text(wide(text.inner().len())),
                    LiteralValue::Bytes(bytes) => Size::text(wide(bytes.inner().len())),
                    _ => Size::scalar(),
                }
            }
            Expr::Ident(name) => {
                self.step(0);
                self.variable(name)
            }
            Expr::Select(select) => {
                let of = self.expression(&select.operand);
                self.step(0);
                if select.test { Size::scalar() } else { of.largest_item() }
            }
            Expr::Call(call) => {
                let parts = call.target.as_deref().into_iter().chain(&call.args);
                let sizes: Vec<_> = parts.map(|part| self.expression(part)).collect();
                self.call(&call.func_name, &call.args, sizes)
            }
            Expr::List(list) => {
                let items: Vec<_> = list.elements.iter().map(|element| self.expression(element)).collect();
                let all = Size::of_items(items);
                self.step(all.bytes);
                all
            }
            Expr::Map(map) => {
                let mut items = Vec::new();
                let mut keys: u64 = 0;
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let key = self.expression(&entry.key).bytes.saturating_add(KEY);
                        keys = keys.saturating_add(key);
                        items.push(self.expression(&entry.value));
                    }
                }
                let mut all = Size::of_items(items);
                all.bytes = all.bytes.saturating_add(keys);
                self.step(all.bytes);
                all
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => {
                self.step(0);
                Size::scalar()
            }
        }
    }

    fn call(&mut self, name: &str, args: &[IdedExpr], sizes: Vec<Size>) -> Size {
        let read = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.bytes));
        match name {
            // These operators read booleans, or return an operand.
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE => {
                self.step(0);
                Size::scalar()
            }
            operators::CONDITIONAL => {
                self.step(0);
                sizes.into_iter().skip(1).reduce(Size::or).unwrap_or_else(Size::scalar)
            }
            operators::ADD => {
                self.step(read);
                sizes.into_iter().reduce(Size::and).unwrap_or_else(Size::scalar)
            }
            operators::INDEX => {
                let is_plain = args.last().is_some_and(|at| {
                    matches!(at.expr, Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_)))
                });
                // For any other index, the error message quotes the whole list.
                self.step(if is_plain { 0 } else { read });
                sizes.into_iter().next().map_or_else(Size::scalar, Size::largest_item)
            }
            "string" => {
                self.step(read);
                sizes.into_iter().fold(Size::text(NUMBER_AS_TEXT), Size::or)
            }
            _ => {
                self.step(read);
                Size::scalar()
            }
        }
    }

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Size {
        let range = self.expression(&it.iter_range);
        let begin = self.expression(&it.accu_init);
        // Each element is copied once.
        self.step(range.bytes);
        let (outside, before) = (self.times, self.bound.len());
        let length = range.length;
        self.times = outside.saturating_mul(length);
        let item = range.largest_item();
        if let Some(second) = &it.iter_var2 {
            self.bound.push((second, item.clone()));
        }
        self.bound.push((&it.iter_var, item));
        self.bound.push((&it.accu_var, begin.clone()));
        self.expression(&it.loop_cond);
        let body = self.expression(&it.loop_step);
        self.times = outside;
        // The bodies of `map` and `filter` make a list and add it to the result. Others keep a truth or a number.
        let end = if body.item.is_some() { body.times(length) } else { begin.or(body) };
        if let Some((_, accumulated)) = self.bound.last_mut() {
            *accumulated = end;
        }
        let result = self.expression(&it.result);
        self.bound.truncate(before);
        self.step(0);
        result
    }
}
