//! Budgets: so much at once, and one more each so often.

/// How much is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Units at once.
    pub most: i64,
    /// One unit is regained in this time, in milliseconds.
    pub every_ms: i64,
}

/// How much of a budget is spent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    units: i64,
    since_ms: i64,
}

impl Spent {
    /// Takes one unit; `false`: the budget is spent.
    pub fn take(&mut self, budget: Budget, now_ms: i64) -> bool {
        self.take_units(budget, 1, now_ms)
    }

    /// Takes units while any is left, so that the last one may be exceeded once.
    pub fn take_units(&mut self, budget: Budget, units: i64, now_ms: i64) -> bool {
        self.regain(budget, now_ms);
        let is_left = self.units < budget.most;
        if is_left {
            self.units += units;
        }
        is_left
    }

    /// Tells whether everything is regained, so that the state can be forgotten.
    pub fn is_whole(&mut self, budget: Budget, now_ms: i64) -> bool {
        self.regain(budget, now_ms);
        self.units == 0
    }

    fn regain(&mut self, budget: Budget, now_ms: i64) {
        // A clock that was set back gives nothing, and what is regained counts from there.
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
