//! One client of one BMC, without I/O: answers in, requests out.
//!
//! ```text
//! GET /redfish/v1/ -> GET Systems (all pages) -> GET the system --> (read)  done
//!                                                               --> (reset) [GET ActionInfo] -> POST Actions/ComputerSystem.Reset -> done
//!                                                               --> (boot)  PATCH, If-Match -> done
//!                                                                           412: GET the system, PATCH once more
//!                                                                           a refusal with its reason: another PATCH
//!                                                               --> (confirm) compare the boot override
//!                                                               --> (restart) GET its manager [GET ActionInfo] -> POST Actions/Manager.Reset -> done
//! ```
//!
//! The system is looked up once. Each operation begins with a GET of the system, because its power, its ETag and its
//! allowed values change. Redirects are followed only on the BMC itself.

use serde_json::{Value, json};

use crate::choice::{Override, RESTART, reset_type, restart_type};
use crate::error::{Failure, told};
use crate::reference::{Origin, name};
use crate::resource::{
    Action, BootNow, System, is_lasting, link, managers, members, objections, reset_types, said,
};

/// The service root (DSP0266 §6.2).
const ROOT: &str = "/redfish/v1/";
/// The most requests of an operation. It takes four or five; pages and redirects add a few.
const MAX_REQUESTS: u32 = 32;
/// How often a refused boot override is changed and sent again: once for its mode, once for its target.
const MENDS: u8 = 2;
/// The most systems that an error names.
const NAMES: usize = 64;

/// The operation to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read the power state of the system.
    Read,
    /// Change the power state.
    Reset(Reset),
    /// Choose the next boot device.
    Boot(Boot),
    /// Check that the system has the boot override that was set last.
    Confirm,
    /// Restart the BMC that manages the system. The system is not touched.
    RestartManager,
}

/// A change of the power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// Power on. Nothing is sent to a system that is on, since BMCs refuse that.
    On,
    /// Power off at once. Nothing is sent to a system that is off.
    Off,
    /// Ask the operating system to shut down.
    SoftOff,
    /// Power off and on again, or reset if the BMC supports only that.
    Cycle,
}

/// The override of the next boot, for one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot {
    /// The device to boot from.
    pub device: Device,
    /// Boot by UEFI, even if the BMC's mode is another one. `false`: keep the BMC's mode.
    pub uefi: bool,
}

/// A device to boot from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The network, by PXE or by UEFI HTTP boot.
    Network,
    /// The default disk.
    Disk,
}

/// The power state of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// The system is on.
    On,
    /// The system is off.
    Off,
    /// The system is powering on.
    PoweringOn,
    /// The system is powering off.
    PoweringOff,
}

/// The HTTP method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads a resource.
    Get,
    /// Changes a resource; with an ETag, at most once.
    Patch,
    /// Starts an action.
    Post,
    /// Removes a resource.
    Delete,
}

impl Method {
    /// The method's name in HTTP.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Patch => "PATCH",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path. It begins with `/` and is a valid request target (RFC 9112 §3.2.1).
    pub path: String,
    /// The JSON body.
    pub body: Option<Value>,
    /// The ETag for If-Match, as the BMC sent it.
    pub if_match: Option<String>,
}

impl Request {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::Get, path, body: None, if_match: None }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method.as_str(), told(&self.path))
    }
}

/// A received answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The header Location.
    pub location: Option<&'a str>,
    /// The header ETag.
    pub etag: Option<&'a str>,
    /// The whole body.
    pub body: &'a [u8],
}

/// The result of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this request next.
    Send(Request),
    /// The operation has ended. The value is the power state when it began.
    Done(Power),
}

/// The purpose of the outstanding request.
#[derive(Debug, Clone)]
enum Stage {
    Root,
    Systems { found: Vec<String> },
    System { again: bool },
    Manager,
    ActionInfo { target: String, power: Power },
    Patched { again: bool, mends: u8, power: Power, set: Override, now: BootNow },
    Posted { power: Power },
    Idle,
}

/// A client of one BMC.
#[derive(Debug)]
pub struct ClientCore {
    origin: Origin,
    username: String,
    wanted: Option<String>,
    /// The path of the system, once it is known.
    system: Option<String>,
    /// The boot override that the BMC accepted last.
    set: Option<Override>,
    operation: Operation,
    stage: Stage,
    outstanding: Request,
    requests: u32,
}

impl ClientCore {
    /// A client of the BMC at this host and port. If the BMC has several systems, `system` selects one by the last
    /// segment of its path. `username` is only used in errors.
    #[must_use]
    pub fn new(host: &str, port: u16, username: &str, system: Option<&str>) -> Self {
        Self {
            origin: Origin { host: host.to_owned(), port },
            username: username.to_owned(),
            wanted: system.map(str::to_owned),
            system: None,
            set: None,
            operation: Operation::Read,
            stage: Stage::Idle,
            outstanding: Request::get(ROOT.to_owned()),
            requests: 0,
        }
    }

    /// The value of the header Host.
    #[must_use]
    pub fn authority(&self) -> String {
        self.origin.authority()
    }

    /// Starts an operation and returns its first request. An operation in progress is abandoned.
    pub fn begin(&mut self, operation: Operation) -> Request {
        self.operation = operation;
        self.requests = 1;
        let path = match &self.system {
            Some(path) => {
                self.stage = Stage::System { again: false };
                path.clone()
            }
            None => {
                self.stage = Stage::Root;
                ROOT.to_owned()
            }
        };
        self.outstanding = Request::get(path);
        self.outstanding.clone()
    }

    /// Takes the answer to the latest request.
    ///
    /// # Errors
    /// [`Failure`]; the operation has ended.
    pub fn receive(&mut self, answer: &Answer<'_>) -> Result<Step, Failure> {
        let next = match answer.status {
            301 | 302 | 307 | 308 => self.redirected(answer)?,
            200..=299 => match self.answered(answer)? {
                Step::Send(request) => request,
                done @ Step::Done(_) => return Ok(done),
            },
            412 | 428 => self.outdated(answer)?,
            _ => self.mended(answer).ok_or_else(|| self.refused(answer))?,
        };
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            return Err(Failure::Endless(MAX_REQUESTS));
        }
        self.outstanding = next.clone();
        Ok(Step::Send(next))
    }

    fn answered(&mut self, answer: &Answer<'_>) -> Result<Step, Failure> {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Root => {
                let root = self.json(answer)?;
                let systems = link(&root, "Systems").ok_or_else(|| self.malformed("it has no Systems"))?;
                let path = self.path(&systems)?;
                self.stage = Stage::Systems { found: Vec::new() };
                Ok(Step::Send(Request::get(path)))
            }
            Stage::Systems { found } => self.listed(answer, found),
            Stage::System { .. } if self.operation == Operation::RestartManager => self.manager(answer),
            Stage::System { again } => self.read(answer, again),
            Stage::Manager => self.restart(answer),
            Stage::ActionInfo { target, power } => {
                let allowed = reset_types(&self.json(answer)?);
                self.post(target, allowed.as_deref(), power)
            }
            Stage::Patched { power, set, .. } => {
                self.set = Some(set);
                Ok(Step::Done(power))
            }
            Stage::Posted { power } => Ok(Step::Done(power)),
            Stage::Idle => Err(self.malformed("nothing was asked")),
        }
    }

    fn listed(&mut self, answer: &Answer<'_>, mut found: Vec<String>) -> Result<Step, Failure> {
        let (page, next) = members(&self.json(answer)?).ok_or_else(|| self.malformed("it has no Members"))?;
        for member in page {
            found.push(self.path(&member)?);
        }
        if let Some(next) = next {
            let path = self.path(&next)?;
            self.stage = Stage::Systems { found };
            return Ok(Step::Send(Request::get(path)));
        }
        let names = || found.iter().take(NAMES).map(|path| told(name(path))).collect();
        let path = match (&self.wanted, found.as_slice()) {
            (Some(wanted), _) => found.iter().find(|path| name(path) == wanted),
            (None, [] | [_]) => found.first(),
            (None, _) => return Err(Failure::SeveralSystems { names: names() }),
        };
        let path =
            path.ok_or_else(|| Failure::NoSystem { wanted: self.wanted.clone(), names: names() })?.clone();
        self.system = Some(path.clone());
        self.stage = Stage::System { again: false };
        Ok(Step::Send(Request::get(path)))
    }

    /// Continues with the BMC that manages the system. The system's power is of no interest.
    fn manager(&mut self, answer: &Answer<'_>) -> Result<Step, Failure> {
        let managers = managers(&self.json(answer)?);
        let [manager, ..] = managers.as_slice() else {
            return Err(Failure::Unsupported { what: RESTART, allowed: Vec::new() });
        };
        let path = self.path(manager)?;
        self.stage = Stage::Manager;
        Ok(Step::Send(Request::get(path)))
    }

    fn restart(&mut self, answer: &Answer<'_>) -> Result<Step, Failure> {
        let action = Action::read(&self.json(answer)?, "#Manager.Reset");
        let target =
            action.target.ok_or_else(|| Failure::Unsupported { what: RESTART, allowed: Vec::new() })?;
        let target = self.path(&target)?;
        self.act(target, (action.allowed, action.info), Power::Off)
    }

    /// Posts an action, once its allowed ResetTypes are known.
    fn act(
        &mut self,
        target: String,
        (allowed, info): (Option<Vec<String>>, Option<String>),
        power: Power,
    ) -> Result<Step, Failure> {
        match (allowed, info) {
            (None, Some(info)) => {
                let info = self.path(&info)?;
                self.stage = Stage::ActionInfo { target, power };
                Ok(Step::Send(Request::get(info)))
            }
            (allowed, _) => self.post(target, allowed.as_deref(), power),
        }
    }

    /// Handles the system's properties, and continues with the operation.
    fn read(&mut self, answer: &Answer<'_>, again: bool) -> Result<Step, Failure> {
        let system = System::read(&self.json(answer)?);
        let power = match system.power.as_deref() {
            Some("On" | "Paused") => Power::On,
            Some("Off") => Power::Off,
            Some("PoweringOn") => Power::PoweringOn,
            Some("PoweringOff") => Power::PoweringOff,
            other => return Err(Failure::NoPowerState(other.map_or_else(|| "null".to_owned(), told))),
        };
        match self.operation {
            Operation::Read | Operation::RestartManager => Ok(Step::Done(power)),
            Operation::Confirm => match &self.set {
                Some(set) => match set.contradicted(&system.boot) {
                    Some(reads) => Err(Failure::NotKept { wanted: set.to_string(), reads }),
                    None => Ok(Step::Done(power)),
                },
                None => Ok(Step::Done(power)),
            },
            Operation::Reset(Reset::On) if matches!(power, Power::On | Power::PoweringOn) => {
                Ok(Step::Done(power))
            }
            Operation::Reset(Reset::Off) if power == Power::Off => Ok(Step::Done(power)),
            Operation::Reset(_) => {
                let target = system.reset.as_deref().ok_or_else(|| self.malformed("it has no Reset"))?;
                let target = self.path(target)?;
                self.act(target, (system.resets, system.info), power)
            }
            Operation::Boot(boot) => {
                let set = Override::choose(boot, &system.boot)?;
                let body = Some(set.body());
                // If-Match is compared with this header. Some BMCs only have the property.
                let etag = answer.etag.map(str::to_owned).or(system.etag);
                let if_match = etag.filter(|etag| is_etag(etag)).map(|etag| match again {
                    // If-Match never matches a weak tag (RFC 9110 §13.1.1), but some BMCs have no other.
                    true => etag.trim_start_matches("W/").to_owned(),
                    false => etag,
                });
                self.stage = Stage::Patched { again, mends: 0, power, set, now: system.boot };
                let path = self.outstanding.path.clone();
                Ok(Step::Send(Request { method: Method::Patch, path, body, if_match }))
            }
        }
    }

    fn post(&mut self, path: String, allowed: Option<&[String]>, power: Power) -> Result<Step, Failure> {
        let reset = match self.operation {
            Operation::Reset(reset) => reset_type(reset, allowed)?,
            Operation::RestartManager => restart_type(allowed)?,
            Operation::Read | Operation::Boot(_) | Operation::Confirm => return Ok(Step::Done(power)),
        };
        let body = Some(json!({ "ResetType": reset }));
        self.stage = Stage::Posted { power };
        Ok(Step::Send(Request { method: Method::Post, path, body, if_match: None }))
    }

    /// The same request at the place that the BMC named.
    fn redirected(&self, answer: &Answer<'_>) -> Result<Request, Failure> {
        // A request with effects is only repeated if the status clearly demands it (RFC 9110 §15.4).
        if self.outstanding.method != Method::Get && matches!(answer.status, 301 | 302) {
            return Err(self.refused(answer));
        }
        let to = answer.location.ok_or_else(|| self.malformed("it redirects and does not say where"))?;
        let path = self
            .origin
            .path(to)
            .ok_or_else(|| Failure::Elsewhere { request: self.outstanding.to_string(), to: told(to) })?;
        Ok(Request { path, ..self.outstanding.clone() })
    }

    /// The system has changed since it was read: reads it again, once.
    fn outdated(&mut self, answer: &Answer<'_>) -> Result<Request, Failure> {
        let (Stage::Patched { again: false, .. }, Some(path)) = (&self.stage, &self.system) else {
            return Err(self.refused(answer));
        };
        let path = path.clone();
        self.stage = Stage::System { again: true };
        Ok(Request::get(path))
    }

    /// A refused boot override, changed according to the reasons of the refusal.
    fn mended(&mut self, answer: &Answer<'_>) -> Option<Request> {
        let Stage::Patched { mends, set, now, .. } = &mut self.stage else { return None };
        let mended = set.mended(&objections(answer.body), now).filter(|_| *mends < MENDS)?;
        *mends += 1;
        *set = mended;
        let body = Some(set.body());
        Some(Request { body, ..self.outstanding.clone() })
    }

    fn refused(&self, answer: &Answer<'_>) -> Failure {
        let (request, said) = (self.outstanding.to_string(), said(answer.body));
        let username = self.username.clone();
        match answer.status {
            401 => Failure::WrongPassword { username, said },
            403 => Failure::RefusedPrivilege { request, username, said },
            // A BMC that restarts lacks resources for a while.
            status
                if self.outstanding.method != Method::Get && is_lasting(status, &objections(answer.body)) =>
            {
                Failure::Rejected { request, status, said }
            }
            status => Failure::Refused { request, status, said },
        }
    }

    fn json(&self, answer: &Answer<'_>) -> Result<Value, Failure> {
        serde_json::from_slice(answer.body).map_err(|error| self.malformed(&error.to_string()))
    }

    fn path(&self, reference: &str) -> Result<String, Failure> {
        let wrong =
            || self.malformed(&format!("it refers to {:?}, which is not on this BMC", told(reference)));
        self.origin.path(reference).ok_or_else(wrong)
    }

    fn malformed(&self, reason: &str) -> Failure {
        Failure::Malformed { request: self.outstanding.to_string(), reason: reason.to_owned() }
    }
}

/// True if this ETag of a BMC can be sent in a header.
pub(crate) fn is_etag(text: &str) -> bool {
    !text.is_empty() && text.len() <= 256 && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

#[cfg(test)]
mod tests;
