//! A rack's Redfish client: with any answers of a BMC, its requests stay on that BMC, and their number is bounded.

use basalt_redfish::{Answer, Boot, ClientCore, Device, Operation, Reset, Step};

use crate::sequence::{messages, sequence};

/// A number of requests above the limit of any operation.
const MANY: usize = 40;

/// Answers to a client. The extra byte of each selects the status; the text before the first line feed is Location and ETag.
pub fn redfish(data: &[u8]) {
    let operations = [
        Operation::Read,
        Operation::Reset(Reset::Cycle),
        Operation::Boot(Boot { device: Device::Network, uefi: true }),
    ];
    let (first, answers) = data.split_first().unwrap_or((&0, &[]));
    let mut client = ClientCore::new("10.0.0.1", 443, "admin", None);
    let mut at = usize::from(*first) % operations.len();
    let mut sent = client.begin(operations[at]);
    let mut requests = 1;
    for (besides, answer) in messages(answers) {
        assert!(sent.path.starts_with('/') && !sent.path.starts_with("//"), "{sent}");
        assert!(sent.path.bytes().all(|byte| byte > b' ' && byte != 0x7f), "{sent}");
        assert!(requests <= MANY);
        let status = [200, 204, 308, 401, 403, 404, 412, 503][usize::from(besides) % 8];
        let (head, body) = match answer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (std::str::from_utf8(&answer[..end]).ok(), &answer[end + 1..]),
            None => (None, answer),
        };
        match client.receive(&Answer { status, location: head, etag: head, body }) {
            Ok(Step::Send(next)) => {
                sent = next;
                requests += 1;
            }
            Ok(Step::Done(_)) | Err(_) => {
                at = (at + 1) % operations.len();
                sent = client.begin(operations[at]);
                requests = 1;
            }
        }
    }
}

pub(crate) fn seeds_redfish() -> Vec<Vec<u8>> {
    let root = br#"{"Systems": {"@odata.id": "/redfish/v1/Systems"}}"#;
    let page = br#"{"Members": [], "Members@odata.nextLink": "/redfish/v1/Systems?$skip=1"}"#;
    let systems = br#"{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}"#;
    let system = b"\"1\"\n{\"PowerState\": \"On\", \"Boot\": {\"BootSourceOverrideMode\": \"Legacy\", \
        \"BootSourceOverrideTarget@Redfish.AllowableValues\": [\"Pxe\"]}, \"@odata.etag\": \"W/1\", \"Actions\": {\"#ComputerSystem.Reset\": \
        {\"target\": \"/redfish/v1/Systems/1/Actions/ComputerSystem.Reset\", \"@Redfish.ActionInfo\": \"/redfish/v1/Systems/1/ResetActionInfo\"}}}";
    let info = br#"{"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceRestart"]}]}"#;
    let error = br#"{"error": {"message": "no", "@Message.ExtendedInfo": [{"Message": "No.", "Resolution": "Ask again."}]}}"#;
    let answers: [&[u8]; 12] =
        [root, page, systems, system, system, info, b"{}", system, b"{}", system, error, error];
    let mut whole = vec![0];
    whole.extend(sequence(answers));
    vec![whole, vec![1], [&[2][..], &sequence([&root[..], systems, system, b"", system])].concat()]
}
