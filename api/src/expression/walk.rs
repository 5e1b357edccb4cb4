//! Checks every node of an expression before its first evaluation: names, fields, functions, loops.

use std::collections::BTreeSet;

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue};

use super::variables::{HARDWARE, Shape, VARIABLES};
use super::{ExpressionError, MAX_LEVELS};

/// Allowed functions, in addition to the operators.
const FUNCTIONS: [&str; 7] = ["size", "contains", "startsWith", "endsWith", "string", "int", "double"];
/// Most nested loops.
const MAX_LOOPS: usize = 2;

/// The variables that an expression uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Names of the variables.
    pub(super) roots: BTreeSet<&'static str>,
    /// True if one of them is hardware.
    pub(super) hardware: bool,
}

struct Walk<'a> {
    at: &'a dyn Fn(u64) -> u32,
    found: Found,
    /// Variables of the surrounding loops, with their shapes.
    bound: Vec<(&'a str, Shape)>,
    loops: usize,
    levels: usize,
}

pub(super) fn walk(root: &IdedExpr, at: &dyn Fn(u64) -> u32) -> Result<Found, ExpressionError> {
    let mut walk = Walk { at, found: Found::default(), bound: Vec::new(), loops: 0, levels: 0 };
    walk.expression(root)?;
    let mut found = walk.found;
    found.hardware = found.roots.iter().any(|root| HARDWARE.contains(root));
    Ok(found)
}

impl<'a> Walk<'a> {
    fn unknown<T>(&self, id: u64, message: String) -> Result<T, ExpressionError> {
        Err(ExpressionError::Unknown { at: (self.at)(id), message })
    }

    fn expression(&mut self, node: &'a IdedExpr) -> Result<Shape, ExpressionError> {
        self.levels = self.levels.saturating_add(1);
        if self.levels > MAX_LEVELS {
            return Err(ExpressionError::TooLarge { what: "levels", has: self.levels, most: MAX_LEVELS });
        }
        let shape = self.node(node);
        self.levels = self.levels.saturating_sub(1);
        shape
    }

    fn node(&mut self, node: &'a IdedExpr) -> Result<Shape, ExpressionError> {
        match &node.expr {
            Expr::Ident(name) => self.name(node.id, name),
            Expr::Select(select) => {
                let shape = self.expression(&select.operand)?;
                self.field(node.id, shape, &select.field)
            }
            Expr::Call(call) => {
                let mut shapes = Vec::new();
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    shapes.push(self.expression(part)?);
                }
                let name = call.func_name.as_str();
                // The parser's names for operators contain signs, so no function in a text can have such a name.
                let is_operator = name.contains(|c: char| !c.is_ascii_alphanumeric());
                match (name, shapes.as_slice()) {
                    ("_[_]", [Shape::List(item), ..]) => return Ok(**item),
                    ("_[_]", [Shape::Flags, ..]) => return Ok(Shape::Text),
                    ("_[_]", [Shape::Fields(_), ..]) => {
                        return self.unknown(node.id, "fields are named after a dot".to_owned());
                    }
                    _ if is_operator || FUNCTIONS.contains(&name) => {}
                    _ => {
                        let message = format!("there is no function {name}: {}", FUNCTIONS.join(", "));
                        return self.unknown(node.id, message);
                    }
                }
                Ok(Shape::Any)
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element)?;
                }
                Ok(Shape::Any)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key)?;
                        self.expression(&entry.value)?;
                    }
                }
                Ok(Shape::Any)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Literal(LiteralValue::Bytes(_)) => {
                self.unknown(node.id, "bytes are of no use here".to_owned())
            }
            Expr::Literal(_) => Ok(Shape::Any),
            Expr::Struct(_) | Expr::Unspecified => self.unknown(node.id, "that is of no use here".to_owned()),
        }
    }

    fn name(&mut self, id: u64, name: &str) -> Result<Shape, ExpressionError> {
        if let Some((_, shape)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(*shape);
        }
        match VARIABLES.iter().find(|variable| variable.name == name) {
            Some(variable) => {
                self.found.roots.insert(variable.name);
                Ok(variable.shape)
            }
            None => {
                let names: Vec<_> = VARIABLES.iter().map(|variable| variable.name).collect();
                self.unknown(id, format!("there is no {name}: {}", names.join(", ")))
            }
        }
    }

    fn field(&self, id: u64, shape: Shape, name: &str) -> Result<Shape, ExpressionError> {
        match shape {
            Shape::Any => Ok(Shape::Any),
            Shape::Fields(fields) => match fields.iter().find(|(field, _)| *field == name) {
                Some((_, shape)) => Ok(*shape),
                None => {
                    let names: Vec<_> = fields.iter().map(|(field, _)| *field).collect();
                    self.unknown(id, format!("there is no field {name}: {}", names.join(", ")))
                }
            },
            Shape::List(_) | Shape::Flags => {
                self.unknown(id, format!("a list has no field {name}; use exists or all"))
            }
            Shape::Text | Shape::Number | Shape::Truth => {
                self.unknown(id, format!("{shape:?} has no field {name}"))
            }
        }
    }

    /// A macro: `disks.exists(d, d.rotational)`.
    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Result<Shape, ExpressionError> {
        let range = self.expression(&it.iter_range)?;
        let is_list = match &it.iter_range.expr {
            Expr::List(_) | Expr::Comprehension(_) => true,
            _ => matches!(range, Shape::List(_) | Shape::Flags),
        };
        if !is_list {
            let message = "loops go over disks, interfaces, neighbours, gpus, pci, usb, memory_modules, cpu_flags, or a list that is written out";
            return self.unknown(it.iter_range.id, message.to_owned());
        }
        if self.loops >= MAX_LOOPS {
            let message = format!("at most {MAX_LOOPS} loops within each other");
            return self.unknown(it.iter_range.id, message);
        }
        let item = match range {
            Shape::List(item) => *item,
            Shape::Flags => Shape::Text,
            _ => Shape::Any,
        };
        self.expression(&it.accu_init)?;
        let before = self.bound.len();
        self.bound.push((&it.iter_var, item));
        if let Some(second) = &it.iter_var2 {
            self.bound.push((second, Shape::Any));
        }
        self.bound.push((&it.accu_var, Shape::Any));
        self.loops = self.loops.saturating_add(1);
        self.expression(&it.loop_cond)?;
        self.expression(&it.loop_step)?;
        self.loops = self.loops.saturating_sub(1);
        self.expression(&it.result)?;
        self.bound.truncate(before);
        // The elements of `map` can have any type. Those of `filter` have the type of its list, but are not distinguished here.
        Ok(Shape::Any)
    }
}
