//! Renders Markdown as HTML.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// Renders a page. `link` maps the target of each link.
pub(super) fn page(text: &str, link: impl Fn(&str) -> String) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    name_headings(&mut events);
    for event in &mut events {
        if let Event::Start(Tag::Link { dest_url, .. }) = event {
            *dest_url = CowStr::from(link(dest_url));
        }
    }
    let mut page = String::with_capacity(text.len() * 2);
    html::push_html(&mut page, events.into_iter());
    page
}

/// Gives each heading an id for links.
fn name_headings(events: &mut [Event<'_>]) {
    let mut words = String::new();
    let mut begun = None;
    for at in 0..events.len() {
        match events.get(at) {
            Some(Event::Start(Tag::Heading { .. })) => (begun, words) = (Some(at), String::new()),
            Some(Event::Text(text) | Event::Code(text)) if begun.is_some() => words.push_str(text),
            Some(Event::End(TagEnd::Heading(_))) => {
                let heading = begun.take().and_then(|at| events.get_mut(at));
                if let Some(Event::Start(Tag::Heading { id, .. })) = heading {
                    *id = Some(CowStr::from(anchor(&words)));
                }
            }
            _ => {}
        }
    }
}

/// The id of a heading, by GitHub's rules.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Renders a description: text with code in backticks, and perhaps a list. HTML in it is escaped.
pub(super) fn inline(text: &str) -> String {
    let events = Parser::new(text).filter_map(|event| match event {
        Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph) => None,
        Event::Html(html) | Event::InlineHtml(html) => Some(Event::Text(html)),
        event => Some(event),
    });
    let mut html = String::with_capacity(text.len());
    html::push_html(&mut html, events);
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_code_and_no_markup_of_others() {
        assert_eq!(inline("The `name`, not <b>."), "The <code>name</code>, not &lt;b&gt;.");
    }

    #[test]
    fn headings_can_be_linked_and_links_lead_where_they_are_sent() {
        let page = page("# Set-up: `basalt lint`\n\n[there](x.md#a)\n\n| a |\n| --- |\n| b |\n", |to| {
            format!("/{to}")
        });
        assert!(page.contains("<h1 id=\"set-up-basalt-lint\">"), "{page}");
        assert!(page.contains("href=\"/x.md#a\"") && page.contains("<td>b</td>"), "{page}");
    }
}
