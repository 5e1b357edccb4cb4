//! One decision for all deployments that need a machine.
//!
//! Deployments are served in this order:
//!
//! 1. those with the fewest matching machines: otherwise a deployment that fits anywhere may take another one's only match,
//! 2. the oldest ones,
//! 3. by name.
//!
//! Each gets the best machine that is left. These criteria decide, one after the other:
//!
//! 1. the fewest deployments of its group in the machine's failure domain, if the group is to be spread,
//! 2. the largest weight of the preferences that the machine meets,
//! 3. the smallest machine,
//! 4. the name.
//!
//! The algorithm is greedy: a machine that was given is not taken back. So it can miss an assignment that serves more deployments.
//!
//! Deployments with equal selectors share one examination of all machines: thousands of them cost little more than one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use basalt_api::kinds::{Architecture, Selector, SpreadBy};
use basalt_api::values::{DeploymentId, MachineId, Timestamp};
use serde::{Deserialize, Serialize};

use super::matching::{Constraint, failed, fits, hindrances, is_preferred, lacks};
use super::{Candidate, Choice, Miss, Misses};

/// A deployment that waits for a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineRequest {
    /// The deployment's id.
    pub uid: DeploymentId,
    /// The deployment's name.
    pub name: String,
    /// When it was declared.
    pub created_at: Timestamp,
    /// The name of the machine that it demands, if any.
    pub machine: Option<String>,
    /// The requirements on its machine. Not used if it names a machine.
    pub selector: Selector,
    /// The image's architecture. It applies if the selector names none.
    pub architecture: Option<Architecture>,
    /// True if its image cannot be installed: it gets no machine.
    #[serde(default)]
    pub not_installable: bool,
    /// True if the deployment declares no network and takes over the network of its machine.
    #[serde(default)]
    pub inherits_network: bool,
}

/// A deployment that has a machine. It counts for the spread of its group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Placed {
    /// The requirements on its machine.
    pub selector: Selector,
    /// The machine that it has.
    pub machine: MachineId,
}

/// The input of a decision.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ground {
    /// The deployments that need a machine.
    pub wishes: Vec<MachineRequest>,
    /// The deployments that have a machine.
    pub placed: Vec<Placed>,
    /// The machines to choose from.
    pub candidates: Vec<Candidate>,
}

impl Ground {
    /// Decides for every wish. The returned ground is reduced to the inputs of the chosen machines: from it, the same machines are
    /// chosen with the same reasons.
    #[must_use]
    pub fn decide(mut self) -> (BTreeMap<DeploymentId, Choice>, Self) {
        let (choices, matching) = decide(&self.wishes, &self.placed, &self.candidates);
        self.wishes.retain(|wish| matches!(choices.get(&wish.uid), Some(Choice::Chosen { .. })));
        let groups: BTreeSet<String> =
            self.wishes.iter().filter_map(MachineRequest::group).map(|(_, it)| it).collect();
        self.placed
            .retain(|it| it.selector.spread_by.is_some_and(|by| groups.contains(&group(&it.selector, by))));
        let counted: BTreeSet<MachineId> = self.placed.iter().map(|it| it.machine).collect();
        let mut does = matching.into_iter();
        self.candidates.retain(|it| does.next().unwrap_or_default() || counted.contains(&it.uid));
        (choices, self)
    }
}

impl MachineRequest {
    /// The reason why the deployment could not have the network of this machine.
    fn obstruction<'a>(&self, candidate: &'a Candidate) -> Option<&'a str> {
        candidate.obstructed.as_deref().filter(|_| self.inherits_network)
    }

    /// The group in which the deployment is to be spread.
    fn group(&self) -> Option<(SpreadBy, String)> {
        let by = self.selector.spread_by.filter(|_| self.machine.is_none())?;
        Some((by, group(&self.selector, by)))
    }
}

/// The number of near misses that are named.
const NEAREST: usize = 3;

/// Decides for every wish.
#[must_use]
pub fn allocate(
    wishes: &[MachineRequest],
    placed: &[Placed],
    candidates: &[Candidate],
) -> BTreeMap<DeploymentId, Choice> {
    decide(wishes, placed, candidates).0
}

/// Like [`allocate`]. The flags are true for candidates that match a deployment that got a machine.
fn decide(
    wishes: &[MachineRequest],
    placed: &[Placed],
    candidates: &[Candidate],
) -> (BTreeMap<DeploymentId, Choice>, Vec<bool>) {
    let mut sources: HashMap<String, Source<'_>> = HashMap::new();
    let mut waiting = Vec::with_capacity(wishes.len());
    for wish in wishes.iter().filter(|wish| !wish.not_installable) {
        let key = key(wish);
        let source = sources.entry(key.clone()).or_insert_with(|| Source::new(wish, candidates));
        waiting.push((source.matching, wish.created_at, wish.uid, wish, key));
    }
    waiting.sort_by_key(|it| (it.0, it.1, it.3.name.as_str(), it.2));
    let mut round =
        Round { candidates, taken: vec![None; candidates.len()], groups: groups(placed, candidates) };
    let mut choices = BTreeMap::new();
    for wish in wishes.iter().filter(|wish| wish.not_installable) {
        choices.insert(wish.uid, Choice::None(Misses { not_installable: true, ..Misses::default() }));
    }
    let mut unmatched = Vec::new();
    let mut served: BTreeSet<&str> = BTreeSet::new();
    for (_, _, uid, wish, key) in &waiting {
        let Some(source) = sources.get_mut(key) else { continue };
        match round.take(wish, source) {
            Some(choice) => {
                served.insert(key);
                choices.insert(*uid, choice);
            }
            None => unmatched.push((*uid, *wish, key)),
        }
    }
    let mut matching = vec![false; candidates.len()];
    for place in served.into_iter().filter_map(|key| sources.get(key)).flat_map(Source::places) {
        if let Some(matches) = matching.get_mut(place) {
            *matches = true;
        }
    }
    // The owners are known only now. Deployments with equal requirements have the same misses.
    let mut misses: HashMap<&str, Misses> = HashMap::new();
    for (uid, wish, key) in unmatched {
        let misses = misses.entry(key).or_insert_with(|| round.misses(wish));
        choices.insert(uid, Choice::None(misses.clone()));
    }
    (choices, matching)
}

/// The key of all wishes with equal requirements.
fn key(wish: &MachineRequest) -> String {
    let inherits = wish.inherits_network;
    match &wish.machine {
        Some(machine) => format!("machine {machine} {inherits}"),
        None => {
            let architecture = wish.architecture.map(|it| it.to_string()).unwrap_or_default();
            format!("{architecture} {inherits} {}", text(&wish.selector))
        }
    }
}

fn text(selector: &Selector) -> String {
    serde_json::to_string(selector).unwrap_or_default()
}

/// The group in which a selector's deployments are spread.
fn group(selector: &Selector, by: SpreadBy) -> String {
    // Groups are per pool: the text must not reveal anything about another pool.
    let pool = selector.pool.as_ref().map_or("", |pool| pool.as_str());
    match &selector.spread_group {
        Some(group) => format!("{by:?} pool {pool} group {group}"),
        None => format!("{by:?} {}", text(selector)),
    }
}

/// The number of a group's deployments in each failure domain.
type Fill = BTreeMap<String, usize>;

fn groups(placed: &[Placed], candidates: &[Candidate]) -> HashMap<String, Fill> {
    let mut groups: HashMap<String, Fill> = HashMap::new();
    let spread = placed.iter().filter_map(|it| Some((it, it.selector.spread_by?)));
    let mut spread = spread.peekable();
    if spread.peek().is_none() {
        return groups;
    }
    let known: HashMap<MachineId, &Candidate> = candidates.iter().map(|c| (c.uid, c)).collect();
    for (placed, by) in spread {
        let Some(machine) = known.get(&placed.machine) else { continue };
        let fill = groups.entry(group(&placed.selector, by)).or_default();
        *fill.entry(machine.domain(by).to_owned()).or_default() += 1;
    }
    groups
}

/// The machines that match a wish, the best first.
struct Source<'a> {
    /// The number of matching machines at the start.
    matching: usize,
    /// The group, if its deployments are spread.
    group: Option<(SpreadBy, String)>,
    /// The machines by failure domain, and how many of them are used. Without spread, there is one domain.
    domains: BTreeMap<&'a str, (Vec<usize>, usize)>,
    /// The weight of the preferences that each machine meets, by its place.
    scores: HashMap<usize, u32>,
}

type Rank<'a> = (Reverse<u32>, (u32, u64), &'a str);

impl<'a> Source<'a> {
    fn new(wish: &MachineRequest, candidates: &'a [Candidate]) -> Self {
        let selector = &wish.selector;
        let does = |candidate: &Candidate| {
            wish.obstruction(candidate).is_none()
                && match &wish.machine {
                    Some(name) => {
                        candidate.name == *name
                            && hindrances(candidate, candidate.owner.as_deref()).is_empty()
                    }
                    None => fits(selector, wish.architecture, candidate),
                }
        };
        let group = wish.group();
        let by = group.as_ref().map(|(by, _)| *by);
        let mut source = Self { matching: 0, group, domains: BTreeMap::new(), scores: HashMap::new() };
        for (place, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| does(candidate)) {
            source.matching = source.matching.saturating_add(1);
            let met = selector.preferences.values().filter(|it| is_preferred(it, candidate));
            let score = met.fold(0_u32, |sum, it| sum.saturating_add(it.weight));
            if score > 0 {
                source.scores.insert(place, score);
            }
            let domain = by.map_or("", |by| candidate.domain(by));
            source.domains.entry(domain).or_default().0.push(place);
        }
        let scores = &source.scores;
        for (places, _) in source.domains.values_mut() {
            places.sort_by_cached_key(|place| candidates.get(*place).map(|c| rank(scores, *place, c)));
        }
        source
    }

    /// The places of all machines that match.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.domains.values().flat_map(|(places, _)| places.iter().copied())
    }
}

fn rank<'a>(scores: &HashMap<usize, u32>, place: usize, candidate: &'a Candidate) -> Rank<'a> {
    (Reverse(scores.get(&place).copied().unwrap_or(0)), candidate.size(), candidate.name.as_str())
}

/// The machines given so far.
struct Round<'a> {
    candidates: &'a [Candidate],
    /// The name of the new owner, by the machine's place.
    taken: Vec<Option<String>>,
    groups: HashMap<String, Fill>,
}

impl Round<'_> {
    fn take(&mut self, wish: &MachineRequest, source: &mut Source<'_>) -> Option<Choice> {
        let fill = source.group.as_ref().map(|(_, group)| self.groups.entry(group.clone()).or_default());
        let mut best = None;
        for (domain, (places, used)) in &mut source.domains {
            let is_taken = |place: &usize| self.taken.get(*place).is_none_or(Option::is_some);
            while places.get(*used).is_some_and(is_taken) {
                *used = used.saturating_add(1);
            }
            let Some(place) = places.get(*used).copied() else { continue };
            let Some(candidate) = self.candidates.get(place) else { continue };
            let there = fill.as_ref().and_then(|fill| fill.get(*domain)).copied().unwrap_or(0);
            let rank = (there, rank(&source.scores, place, candidate));
            if best.as_ref().is_none_or(|(least, _, _)| rank < *least) {
                best = Some((rank, place, *domain));
            }
        }
        let ((there, (score, _, _)), place, domain) = best?;
        if let Some(fill) = fill {
            *fill.entry(domain.to_owned()).or_default() += 1;
        }
        let candidate = self.candidates.get(place)?;
        *self.taken.get_mut(place)? = Some(wish.name.clone());
        let why = why(wish, source, candidate, (there, score.0));
        Some(Choice::Chosen { machine: candidate.uid, why })
    }

    fn owner<'b>(&'b self, place: usize, candidate: &'b Candidate) -> Option<&'b str> {
        candidate.owner.as_deref().or_else(|| self.taken.get(place)?.as_deref())
    }

    fn misses(&self, wish: &MachineRequest) -> Misses {
        let all = self.candidates.iter().enumerate().map(|(place, c)| (c, self.owner(place, c)));
        let Some(name) = &wish.machine else { return self.nearest(wish, all.collect()) };
        let named = all.filter(|(candidate, _)| candidate.name == *name);
        let found: Vec<_> = named.map(|(c, owner)| (c, obstructed(wish, c, hindrances(c, owner)))).collect();
        Misses {
            failed_by: BTreeMap::new(),
            looked_at: found.len(),
            nearest: found.into_iter().map(|(c, lacks)| miss(c, lacks)).collect(),
            not_installable: false,
        }
    }

    /// The nearest misses. Only machines in the selector's pool are named, because the reader may not be allowed to see other pools.
    fn nearest(&self, wish: &MachineRequest, mut all: Vec<(&Candidate, Option<&str>)>) -> Misses {
        if let Some(pool) = &wish.selector.pool {
            all.retain(|(candidate, _)| candidate.pool == pool.as_str());
        }
        let mut misses = Misses { looked_at: all.len(), ..Misses::default() };
        let mut by_distance = Vec::with_capacity(all.len());
        for (candidate, owner) in all {
            let mut constraints = failed(&wish.selector, wish.architecture, candidate, owner);
            constraints.extend(wish.obstruction(candidate).map(|_| Constraint::Address));
            by_distance.push((constraints.len(), candidate, owner));
            constraints.sort_unstable();
            constraints.dedup();
            for constraint in constraints {
                *misses.failed_by.entry(constraint).or_default() += 1;
            }
        }
        by_distance.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        let nearest = by_distance.into_iter().take(NEAREST);
        let named = |c: &Candidate, owner| {
            miss(c, obstructed(wish, c, lacks(&wish.selector, wish.architecture, c, owner)))
        };
        misses.nearest = nearest.map(|(_, candidate, owner)| named(candidate, owner)).collect();
        misses
    }
}

/// The lacks of a machine, with the one of its network.
fn obstructed(
    wish: &MachineRequest,
    candidate: &Candidate,
    mut lacks: Vec<(Constraint, String)>,
) -> Vec<(Constraint, String)> {
    lacks.extend(wish.obstruction(candidate).map(|why| (Constraint::Address, why.to_owned())));
    lacks
}

fn miss(candidate: &Candidate, lacks: Vec<(Constraint, String)>) -> Miss {
    let only_address = lacks.iter().all(|(constraint, _)| *constraint == Constraint::Address);
    let lacks = lacks.into_iter().map(|(_, words)| words).collect();
    Miss { machine: candidate.name.clone(), lacks, only_address }
}

/// The reason for the choice: the number of matches, the spread, and the preferences.
fn why(
    wish: &MachineRequest,
    source: &Source<'_>,
    candidate: &Candidate,
    (there, score): (usize, u32),
) -> String {
    if wish.machine.is_some() {
        return "it is named".to_owned();
    }
    let mut words = match source.matching {
        1 => vec!["the one that matches".to_owned()],
        n => vec![format!("the best of {n} that match")],
    };
    if let Some((by, _)) = &source.group {
        let domain = match candidate.domain(*by) {
            "" => "no known rack".to_owned(),
            name => format!("{by} {name}"),
        };
        words.push(format!("{domain} holds {there} of its group"));
    }
    if score > 0 {
        let met = wish.selector.preferences.iter().filter(|(_, it)| is_preferred(it, candidate));
        let met: Vec<_> = met.map(|(name, _)| name.as_str()).collect();
        words.push(format!("it meets {}", met.join(", ")));
    }
    words.join("; ")
}
