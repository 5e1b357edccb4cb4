//! Prints the OpenAPI document: `make openapi` keeps it in `docs/reference/openapi.json`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(basalt_api::openapi_text().as_bytes())
}
