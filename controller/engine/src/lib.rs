//! The pure planner: spec + facts + policy + now -> plan.
