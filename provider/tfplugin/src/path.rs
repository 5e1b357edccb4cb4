//! The path of a value inside another value.

use std::fmt;

use crate::pb;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// To an object's attribute.
    Attr(String),
    /// To a map's element.
    Key(String),
    /// To a list's element.
    Index(i64),
}

/// The steps from the root of a resource, data source or provider block to a value in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The root itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// This path and one step into an attribute.
    #[must_use]
    pub fn attr(&self, name: &str) -> Self {
        self.with(Step::Attr(name.to_owned()))
    }

    /// This path and one step into a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    /// This path and one step into a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Step::Index(i64::try_from(index).unwrap_or(i64::MAX)))
    }

    /// True for the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    pub(crate) fn to_pb(&self) -> pb::AttributePath {
        use pb::attribute_path::step::Selector;
        let steps = self
            .0
            .iter()
            .map(|step| pb::attribute_path::Step {
                selector: Some(match step {
                    Step::Attr(name) => Selector::AttributeName(name.clone()),
                    Step::Key(key) => Selector::ElementKeyString(key.clone()),
                    Step::Index(index) => Selector::ElementKeyInt(*index),
                }),
            })
            .collect();
        pb::AttributePath { steps }
    }
}

impl fmt::Display for Path {
    /// The path in HCL's form: `interfaces["eth0"].addresses[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Attr(name) if i == 0 => f.write_str(name)?,
                Step::Attr(name) => write!(f, ".{name}")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_hcl() {
        let path = Path::root().attr("interfaces").key("eth0").attr("addresses").index(1);
        assert_eq!(path.to_string(), r#"interfaces["eth0"].addresses[1]"#);
    }
}
