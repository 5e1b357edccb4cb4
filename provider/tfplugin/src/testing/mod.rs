//! For tests: [`Terraform`] runs the real Terraform with the provider in the test's process. [`MiniCore`] is a small core that drives a
//! provider over the real protocol and checks Terraform's rules.
//!
//! Terraform does not tell the cause when a provider contradicts itself, and only finds errors in the values that a configuration uses. The
//! mini core checks every answer, and reports which rule was broken and where:
//!
//! | when | rule |
//! | --- | --- |
//! | plan | what the configuration says is planned, or the prior value where that means the same |
//! | plan | only computed attributes that the configuration leaves out may be unknown, or anything else |
//! | plan | what is write-only is null |
//! | validate | a configuration that is valid is so as well while some of it is unknown |
//! | plan | planning twice gives the same plan; what is planned while some of the configuration is unknown stays so |
//! | apply | every planned value that was known is as it was planned; nothing is unknown |
//! | read | what was just applied is read as it is |
//! | plan | the same configuration then plans nothing |
//! | upgrade | a state of the current version stays as it is |
//! | import | what is imported and read is the same object: its configuration plans nothing of what can be read |
//! | destroy | a destroyed object is read as gone |
//! | identity | where there is one it is whole once an object is created, never changes, and imports that object |
//! | generate | the configuration made for an object is valid, and plans nothing of what it says |
//! | deferral | only where Terraform takes it; whatever is asked of a provider whose block is not known |
//! | data, ephemeral | what is valid is so as well while some of it is unknown; what comes is wholly known, and as the configuration says |
//! | data, function | the same each time, where nothing has changed |
//! | function | what is refused is told in words that Terraform ends with a full stop |
//! | ephemeral | it can be renewed where it wants that, and be closed |
//! | list | every object has a name and an identity that is whole and no other's; no more come than were asked for |
//! | list | a state comes where it was asked for, and is the one that is imported by that identity |
//! | action | what is valid is planned also while some of it is unknown; a plan changes nothing |
//! | action | however it goes, it ends with one word that it is over, and nothing behind that |
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
