//! Budgets: a number of units at once, and one more after each interval.

/// The limits of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The most units at once.
    pub most: i64,
    /// The time in which one unit is regained, in milliseconds.
    pub every_ms: i64,
}

/// The used part of a budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    units: i64,
    since_ms: i64,
}

impl Spent {
    /// Takes one unit; `false`: the budget is used up.
    pub fn take(&mut self, budget: Budget, now_ms: i64) -> bool {
        self.take_units(budget, 1, now_ms)
    }

    /// Takes units if at least one is left. So the budget may be exceeded once, by the last call.
    pub fn take_units(&mut self, budget: Budget, units: i64, now_ms: i64) -> bool {
        self.regain(budget, now_ms);
        let is_left = self.units < budget.most;
        if is_left {
            self.units += units;
        }
        is_left
    }

    /// True if everything is regained: the state need not be kept.
    pub fn is_whole(&mut self, budget: Budget, now_ms: i64) -> bool {
        self.regain(budget, now_ms);
        self.units == 0
    }

    fn regain(&mut self, budget: Budget, now_ms: i64) {
        // If the clock was set back, nothing is regained, and the interval starts over.
        self.since_ms = self.since_ms.min(now_ms);
        let regained = (now_ms - self.since_ms) / budget.every_ms;
        if regained > 0 {
            self.units = (self.units - regained).max(0);
            self.since_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_and_regained_by_and_by() {
        let budget = Budget { most: 3, every_ms: 10 };
        let mut spent = Spent::default();
        assert_eq!([1, 2, 3, 4].map(|now| spent.take(budget, now)), [true, true, true, false]);
        assert_eq!([14, 15].map(|now| spent.take(budget, now)), [true, false]);
        assert!(!spent.is_whole(budget, 30) && spent.is_whole(budget, 60));
        assert!(spent.take_units(budget, 100, 60) && !spent.take(budget, 70));
    }
}
