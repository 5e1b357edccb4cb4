use super::*;

#[test]
fn a_path_names_a_kind_or_is_for_some_and_no_method_of_a_path_stands_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for route in ROUTES {
        assert_eq!(route.kinds != Kinds::Itself, route.path.contains("{plural}"), "{route}");
        assert!(seen.insert((route.method, route.path)), "{route} stands twice");
        assert_eq!(route.id.route().to_string(), route.to_string());
    }
}

#[test]
fn a_route_has_the_parameter_dry_run_if_it_has_a_dry_run() {
    for route in ROUTES {
        assert_eq!(route.dry_run.is_some(), route.parameters.contains(&"dry_run"), "{route}");
        assert!(route.role.is_some() || route.dry_run.is_none(), "{route} is open to anybody");
    }
}
