//! Decides which rack leases which part of a dynamic range. Pure.
//!
//! Racks share a range evenly. A part of a range changes hands in these steps:
//!
//! 1. The region withdraws the part from its rack ([`Hold::Leaving`]).
//! 2. The rack reports that it no longer leases from the part ([`Hold::Ending`]).
//! 3. The last lease in the part ends. Then another rack gets the part.

use std::collections::BTreeMap;
use uuid::Uuid;

/// The longest lease that the region may not know of, if a rack has lost its lease file; in microseconds.
const UNKNOWN_US: i64 = 600 * 1_000_000;
/// How long after its lease an address is kept for its client, in microseconds. Another rack may have promised that.
const KEPT_US: i64 = 600 * 1_000_000;

/// Addresses from `first` to `last`, both included, as numbers of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) first: u128,
    pub(super) last: u128,
}

impl Span {
    /// `None` when it would be empty.
    fn of(first: u128, last: u128) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The number of addresses. It cannot overflow: no subnet has all addresses.
    pub(super) fn len(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    fn common(self, other: Self) -> Option<Self> {
        Self::of(self.first.max(other.first), self.last.min(other.last))
    }

    /// The lowest addresses, at most `many`.
    fn head(self, many: u128) -> Option<Self> {
        let last = self.first.saturating_add(many.checked_sub(1)?);
        Self::of(self.first, last.min(self.last))
    }

    /// The highest addresses, at most `many`.
    fn tail(self, many: u128) -> Option<Self> {
        let first = self.last.saturating_sub(many.checked_sub(1)?);
        Self::of(first.max(self.first), self.last)
    }

    /// The spans that remain without `others`, in order.
    fn without(self, others: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut others: Vec<Self> = others.into_iter().filter_map(|other| self.common(other)).collect();
        others.sort_unstable();
        let (mut left, mut next) = (Vec::new(), Some(self.first));
        for other in others {
            let before = other.first.checked_sub(1);
            left.extend(next.zip(before).and_then(|(next, before)| Self::of(next, before)));
            next = next.zip(other.last.checked_add(1)).map(|(next, after)| next.max(after));
        }
        left.extend(next.and_then(|next| Self::of(next, self.last)));
        left
    }
}

/// The state of a part that a rack has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// The rack leases from it; the uid is the dynamic range that the part belongs to.
    Held(Uuid),
    /// The part is being taken back. The number is that of the rack's first delegation without the part; `None` until that delegation has
    /// a number.
    Leaving(Option<i64>),
    /// The rack grants no lease in it any more. The last lease in it ends at this time: microseconds since 1970, by the database's clock.
    Ending(i64),
}

/// A part of a subnet that a rack has, in any state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) span: Span,
    pub(super) rack: Uuid,
    pub(super) hold: Hold,
    /// The longest lease that the rack may have granted here, in seconds.
    pub(super) lease_seconds: i32,
}

/// The last report of a rack about its blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// The number of the delegation that is in force.
    pub(super) in_force: i64,
    /// The leases that run outside of its blocks, and their ends.
    pub(super) leftover: Vec<(Span, i64)>,
    /// The rack lost its lease file: until this time the list of leases may be incomplete.
    pub(super) unsure_until: Option<i64>,
}

/// The input for the division of one subnet.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation {
    /// The dynamic ranges of the subnet.
    pub(super) ranges: Vec<(Uuid, Span)>,
    /// The racks that answer DHCP there, in order.
    pub(super) racks: Vec<Uuid>,
    /// The present lease time, in seconds.
    pub(super) lease_seconds: i32,
    /// Every rack, with its last report.
    pub(super) told: BTreeMap<Uuid, Told>,
    /// The time of the database's clock, in microseconds since 1970.
    pub(super) now_us: i64,
}

/// The parts as they should be now, in order.
pub(super) fn divided(parts: &[Part], situation: &Situation) -> Vec<Part> {
    let mut parts = released(parts, situation);
    for (range, span) in &situation.ranges {
        divide(&mut parts, *range, *span, situation);
    }
    merged(parts)
}

/// The spans of a rack's present delegation: those that it holds, and those that leave it without a number yet.
pub(super) fn told(parts: &[Part], rack: Uuid) -> Vec<Span> {
    let theirs = merged(
        parts
            .iter()
            .filter(|part| part.rack == rack && matches!(part.hold, Hold::Held(_) | Hold::Leaving(None)))
            .map(|part| Part { hold: Hold::Held(Uuid::nil()), lease_seconds: 0, ..part.clone() })
            .collect(),
    );
    theirs.into_iter().map(|part| part.span).collect()
}

/// Takes parts back from racks that do not serve the subnet, and drops parts from which no lease runs any more.
fn released(parts: &[Part], situation: &Situation) -> Vec<Part> {
    let mut left = Vec::new();
    for part in parts {
        let mut part = part.clone();
        if let Hold::Held(range) = part.hold {
            let kept = situation.ranges.iter().any(|(uid, _)| *uid == range);
            if kept && situation.racks.contains(&part.rack) {
                part.lease_seconds = part.lease_seconds.max(situation.lease_seconds);
                left.push(part);
                continue;
            }
            part.hold = Hold::Leaving(None);
        }
        let longest =
            i64::from(part.lease_seconds).saturating_mul(1_000_000).max(UNKNOWN_US).saturating_add(KEPT_US);
        match (part.hold, situation.told.get(&part.rack)) {
            (Hold::Ending(at), _) if at <= situation.now_us => {}
            (Hold::Leaving(_), None) => {
                // The rack's object was deleted: no report about its leases will come.
                part.hold = Hold::Ending(situation.now_us.saturating_add(longest));
                left.push(part);
            }
            (Hold::Leaving(Some(number)), Some(told)) if told.in_force >= number => {
                left.extend(still_leased(&part, told, longest, situation.now_us));
            }
            _ => left.push(part),
        }
    }
    left
}

/// The pieces of a part that still have leases after the rack has stopped leasing from it.
fn still_leased(part: &Part, told: &Told, longest: i64, now_us: i64) -> Vec<Part> {
    let unsure = told.unsure_until.map(|until| (part.span, until.max(now_us.saturating_add(longest))));
    let leftover = told.leftover.iter().filter_map(|(span, ends)| Some((part.span.common(*span)?, *ends)));
    let runs: Vec<(Span, i64)> = match unsure {
        Some(whole) => vec![whole],
        None => leftover.collect(),
    };
    let ends = runs.into_iter().filter(|(_, ends)| *ends > now_us);
    ends.map(|(span, ends)| Part { span, hold: Hold::Ending(ends), ..part.clone() }).collect()
}

/// Divides one range between the racks.
fn divide(parts: &mut Vec<Part>, range: Uuid, whole: Span, situation: &Situation) {
    let racks = &situation.racks;
    let Some(count) = u128::try_from(racks.len()).ok().filter(|count| *count > 0) else { return };
    let give = |rack: Uuid, span: Span| Part {
        span,
        rack,
        hold: Hold::Held(range),
        lease_seconds: situation.lease_seconds,
    };
    if parts.iter().all(|part| part.span.common(whole).is_none()) {
        // This computes length * rank / count without the product, which may overflow.
        let (share, rest) = (whole.len() / count, whole.len() % count);
        let from = |rank: u128| whole.first + share * rank + rest * rank / count;
        let shares = racks.iter().zip(0..);
        parts.extend(shares.filter_map(|(rack, rank)| {
            Some(give(*rack, Span::of(from(rank), from(rank + 1).checked_sub(1)?)?))
        }));
        return;
    }
    cut_at(parts, whole);
    let floor = whole.len() / count;
    for share in [floor, whole.len().div_ceil(count)] {
        for rack in racks {
            let mut wanted = share.saturating_sub(held(parts, range, *rack));
            // A rack first gets back parts that it is losing, then free ones.
            wanted -= regain(parts, range, whole, *rack, wanted, situation.lease_seconds);
            for gap in whole.without(parts.iter().map(|part| part.span).collect::<Vec<_>>()) {
                if let Some(span) = gap.head(wanted) {
                    wanted -= span.len();
                    parts.push(give(*rack, span));
                }
            }
        }
    }
    take(parts, range, whole, racks, floor);
}

fn held(parts: &[Part], range: Uuid, rack: Uuid) -> u128 {
    let theirs = parts.iter().filter(|part| part.rack == rack && part.hold == Hold::Held(range));
    theirs.map(|part| part.span.len()).sum()
}

/// Cuts parts in two where the range begins and ends.
fn cut_at(parts: &mut Vec<Part>, whole: Span) {
    let cut = std::mem::take(parts).into_iter().flat_map(|part| {
        let inside = part.span.common(whole);
        let outside = part.span.without([whole]);
        outside.into_iter().chain(inside).map(move |span| Part { span, ..part.clone() })
    });
    *parts = cut.collect();
}

/// Gives a rack back parts that were being taken from it, at most `wanted` addresses. Returns how many.
fn regain(
    parts: &mut Vec<Part>,
    range: Uuid,
    whole: Span,
    rack: Uuid,
    wanted: u128,
    lease_seconds: i32,
) -> u128 {
    let mut regained = 0;
    let mut after = Vec::with_capacity(parts.len());
    parts.sort();
    for part in std::mem::take(parts) {
        let leaves = !matches!(part.hold, Hold::Held(_));
        let own = leaves && part.rack == rack && part.span.common(whole).is_some();
        let back = own.then(|| part.span.head(wanted - regained)).flatten();
        let Some(back) = back else {
            after.push(part);
            continue;
        };
        regained += back.len();
        let lease_seconds = part.lease_seconds.max(lease_seconds);
        after.extend(part.span.without([back]).into_iter().map(|span| Part { span, ..part.clone() }));
        after.push(Part { span: back, hold: Hold::Held(range), lease_seconds, ..part });
    }
    *parts = after;
    regained
}

/// Takes addresses from racks: those above the largest share, and as many as others lack below the smallest share. Addresses that
/// are being taken back already count for the lack.
fn take(parts: &mut Vec<Part>, range: Uuid, whole: Span, racks: &[Uuid], floor: u128) {
    let leaving = parts.iter().filter(|part| !matches!(part.hold, Hold::Held(_)));
    let coming: u128 = leaving.filter_map(|part| part.span.common(whole)).map(Span::len).sum();
    let lacking: u128 = racks.iter().map(|rack| floor.saturating_sub(held(parts, range, *rack))).sum();
    let most = whole.len().div_ceil(u128::try_from(racks.len()).unwrap_or(u128::MAX).max(1));
    let above: u128 = racks.iter().map(|rack| held(parts, range, *rack).saturating_sub(most)).sum();
    let mut needed = lacking.saturating_sub(coming).max(above);
    // First from racks that stay above the smallest share, so that the shares stay close to each other.
    for keep in [floor + 1, floor] {
        for rack in racks {
            let mut many = held(parts, range, *rack).saturating_sub(keep).min(needed);
            needed -= many;
            parts.sort();
            // The highest addresses go first: racks lease the lowest first.
            for index in (0..parts.len()).rev() {
                let Some(part) = parts.get_mut(index) else { continue };
                if part.rack != *rack || part.hold != Hold::Held(range) {
                    continue;
                }
                let Some(taken) = part.span.tail(many) else { continue };
                many -= taken.len();
                let leaves = Part { span: taken, hold: Hold::Leaving(None), ..part.clone() };
                match part.span.without([taken]).first() {
                    Some(rest) => {
                        part.span = *rest;
                        parts.push(leaves);
                    }
                    None => *part = leaves,
                }
            }
        }
    }
}

/// Joins neighbouring parts that differ only in their spans.
fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort();
    let mut whole: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        match whole.last_mut() {
            Some(last)
                if (last.rack, last.hold) == (part.rack, part.hold)
                    && last.span.last.checked_add(1) == Some(part.span.first) =>
            {
                last.span.last = part.span.last;
                last.lease_seconds = last.lease_seconds.max(part.lease_seconds);
            }
            _ => whole.push(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rack(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn range() -> Uuid {
        Uuid::from_u128(99)
    }

    fn span(first: u128, last: u128) -> Span {
        Span { first, last }
    }

    fn situation(racks: &[u128], whole: Span) -> Situation {
        Situation {
            ranges: vec![(range(), whole)],
            racks: racks.iter().map(|n| rack(*n)).collect(),
            lease_seconds: 600,
            told: (1..=4).map(|n| (rack(n), Told::default())).collect(),
            now_us: 0,
        }
    }

    /// `1:10-14 2:15-19`; `-` before a part that leaves, `.` before one that ends.
    fn text(parts: &[Part]) -> String {
        let one = |part: &Part| {
            let sign = match part.hold {
                Hold::Held(_) => "",
                Hold::Leaving(_) => "-",
                Hold::Ending(_) => ".",
            };
            format!("{sign}{}:{}-{}", part.rack.as_u128(), part.span.first, part.span.last)
        };
        parts.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// All racks get their new numbers, and report them as in force.
    fn obeyed(parts: &mut [Part], situation: &mut Situation) {
        for part in parts {
            if part.hold == Hold::Leaving(None) {
                part.hold = Hold::Leaving(Some(7));
            }
        }
        for told in situation.told.values_mut() {
            told.in_force = 7;
        }
    }

    #[test]
    fn a_range_that_nobody_has_is_divided_by_rank() {
        assert_eq!(text(&divided(&[], &situation(&[1, 2, 3], span(10, 19)))), "1:10-12 2:13-15 3:16-19");
        assert_eq!(text(&divided(&[], &situation(&[1, 2, 3], span(10, 10)))), "3:10-10");
        assert_eq!(text(&divided(&[], &situation(&[], span(10, 19)))), "");
        let (first, last) = (0x2001_0db8 << 96, (0x2001_0db8 << 96) + (1 << 96) - 1);
        let all = divided(&[], &situation(&[1, 2, 3], span(first, last)));
        let lengths: Vec<u128> = all.iter().map(|part| part.span.len()).collect();
        assert_eq!((lengths.iter().sum::<u128>(), lengths.len()), (1 << 96, 3), "a /32 of IPv6");
        assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
    }

    #[test]
    fn a_rack_that_joins_gets_the_end_of_what_another_has_once_that_one_has_let_go() {
        let mut situation = situation(&[1], span(10, 19));
        let alone = divided(&[], &situation);
        situation.racks.push(rack(2));
        let mut parts = divided(&alone, &situation);
        assert_eq!(text(&parts), "1:10-14 -1:15-19");
        assert_eq!(divided(&parts, &situation), parts, "not before it has said so");
        obeyed(&mut parts, &mut situation);
        situation.told.get_mut(&rack(1)).unwrap().leftover = vec![(span(14, 16), 100), (span(18, 18), 50)];
        let parts = divided(&parts, &situation);
        assert_eq!(text(&parts), "1:10-14 .1:15-16 2:17-17 .1:18-18 2:19-19", "leases there last on");
        situation.now_us = 50;
        let parts = divided(&parts, &situation);
        assert_eq!(text(&parts), "1:10-14 .1:15-16 2:17-19");
        situation.now_us = 100;
        assert_eq!(text(&divided(&parts, &situation)), "1:10-14 2:15-19");
    }

    #[test]
    fn a_rack_that_leaves_keeps_its_part_until_it_has_said_so_and_gets_it_back_before() {
        let mut situation = situation(&[1, 2], span(10, 19));
        let both = divided(&[], &situation);
        situation.racks = vec![rack(1)];
        let mut parts = divided(&both, &situation);
        assert_eq!(text(&parts), "1:10-14 -2:15-19");
        let back = Situation { racks: vec![rack(1), rack(2)], ..situation.clone() };
        assert_eq!(divided(&parts, &back), both);
        obeyed(&mut parts, &mut situation);
        assert_eq!(text(&divided(&parts, &situation)), "1:10-19");
    }

    #[test]
    fn a_rack_whose_object_is_gone_is_outlived_by_its_longest_lease() {
        let mut situation = situation(&[1, 2], span(10, 19));
        situation.lease_seconds = 3600;
        let both = divided(&[], &situation);
        situation.lease_seconds = 60;
        situation.racks = vec![rack(1)];
        situation.told.remove(&rack(2));
        let parts = divided(&both, &situation);
        assert_eq!(text(&parts), "1:10-14 .2:15-19");
        situation.now_us = 3_599_999_999 + KEPT_US;
        assert_eq!(text(&divided(&parts, &situation)), "1:10-14 .2:15-19");
        situation.now_us += 1;
        assert_eq!(text(&divided(&parts, &situation)), "1:10-19");
    }

    #[test]
    fn a_rack_that_lost_its_leases_is_not_believed_to_have_none() {
        let mut situation = situation(&[1, 2], span(10, 19));
        let mut parts = divided(&[], &situation);
        situation.racks = vec![rack(1)];
        parts = divided(&parts, &situation);
        obeyed(&mut parts, &mut situation);
        situation.told.get_mut(&rack(2)).unwrap().unsure_until = Some(5);
        let parts = divided(&parts, &situation);
        assert_eq!(text(&parts), "1:10-14 .2:15-19");
        assert!(parts.iter().any(|part| part.hold == Hold::Ending(UNKNOWN_US + KEPT_US)), "{parts:?}");
    }

    #[test]
    fn what_comes_and_goes_ends_in_equal_shares_that_nobody_has_to_move() {
        let mut seed = 11_u64;
        let mut roll = |sides: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % sides
        };
        let mut parts = Vec::new();
        for _ in 0..500 {
            let size = u128::from(roll(40));
            let first = u128::from(roll(30));
            let whole = span(first, first + size);
            let racks: Vec<u128> = (1..=4).filter(|_| roll(2) == 0).collect();
            let mut now = situation(&racks, whole);
            // The database does the same when a range changes.
            for part in &mut parts {
                let part: &mut Part = part;
                if matches!(part.hold, Hold::Held(_)) && part.span.common(whole) != Some(part.span) {
                    part.hold = Hold::Leaving(None);
                }
            }
            for _ in 0..4 {
                parts = divided(&parts, &now);
                for (n, part) in parts.iter().enumerate() {
                    let apart = |other: &Part| part.span.common(other.span).is_none();
                    assert!(parts.iter().skip(n + 1).all(apart), "{}", text(&parts));
                }
                obeyed(&mut parts, &mut now);
            }
            assert_eq!(divided(&parts, &now), parts, "it rests");
            let shares: Vec<u128> = racks.iter().map(|n| held(&parts, range(), rack(*n))).collect();
            if let (Some(most), Some(least)) = (shares.iter().max(), shares.iter().min()) {
                assert_eq!(shares.iter().sum::<u128>(), whole.len(), "{}", text(&parts));
                assert!(most - least <= 1, "{}", text(&parts));
            }
        }
    }
}
