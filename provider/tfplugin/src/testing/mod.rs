//! For tests: [`Terraform`] runs the real Terraform with the provider in the test's process. [`MiniCore`] is a small core that drives a
//! provider over the real protocol and checks Terraform's rules.
//!
//! Terraform does not tell the cause when a provider contradicts itself, and only finds errors in the values that a configuration uses. The
//! mini core checks every answer, and reports which rule was broken and where:
//!
//! | when | rule |
//! | --- | --- |
//! | plan | a configured value is planned as it is, or as an equal prior value |
//! | plan | only computed attributes that the configuration omits may be unknown or have other values |
//! | plan | write-only attributes are null |
//! | validate | a valid configuration stays valid while a part of it is unknown |
//! | plan | planning twice gives the same plan; values planned while a part of the configuration is unknown do not change later |
//! | apply | every known planned value is unchanged; no value is unknown |
//! | read | a read after an apply returns the applied state |
//! | plan | the same configuration then plans nothing |
//! | upgrade | a state of the current version does not change |
//! | import | an imported object is the same object: its configuration plans no change of readable values |
//! | destroy | a destroyed object is read as gone |
//! | identity | if there is one, it is complete once the object is created, never changes, and imports that object |
//! | generate | the generated configuration of an object is valid, and a plan with it changes no configured value |
//! | deferral | only if Terraform allows it; then for every request to a provider whose block is unknown |
//! | data, ephemeral | a valid configuration stays valid while a part of it is unknown; the result is known, with all configured values |
//! | data, function | the same result each time, if nothing has changed |
//! | function | the text of a refusal has no full stop at its end: Terraform adds one |
//! | ephemeral | it can be renewed if it asks for that, and closed |
//! | list | every object has a name and a complete, unique identity; at most the requested number of objects comes |
//! | list | a requested state is present, and equals the state that is imported by the identity |
//! | action | a valid configuration can be planned while a part of it is unknown; a plan has no effect |
//! | action | it always ends with one event of completion, and sends no event after it |
//!
//! ```
//! # async fn test(provider: impl tfplugin::Provider) -> Result<(), tfplugin::testing::Broken> {
//! use tfplugin::testing::{MiniCore, Random};
//! use tfplugin::Val;
//!
//! let mut core = MiniCore::start(provider, &Val::from([("directory", "/tmp/pets".into())])).await?;
//! for seed in 0..20 {
//!     let mut random = Random::new(seed).choose("name", ["tom", "felix"]);
//!     let configs = [random.config(&core, "pets_pet"), random.config(&core, "pets_pet")];
//!     core.live("pets_pet", &configs, |state| state.get("name").as_str().map(str::to_owned)).await?;
//! }
//! # Ok(()) }
//! ```

mod act;
mod ask;
mod defer;
mod find;
mod mini;
mod random;
mod rules;
mod stop;
mod terraform;
mod wire;

pub use act::Acted;
pub use find::FoundObject;
pub use mini::{Lived, MiniCore};
pub use random::Random;
pub use stop::Interrupt;
pub use terraform::{Terraform, said};

use std::fmt;

/// A broken rule, or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The call, and its subject.
    pub during: String,
    /// The errors, each with its path.
    pub how: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.during, self.how.join("; "))
    }
}

impl std::error::Error for Broken {}
