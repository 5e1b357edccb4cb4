//! Inputs with many messages. Each has a header: its length in two bytes, and one byte of which each
//! target makes its own use, such as time.

/// The extra byte of each message, and the message.
pub(crate) fn messages(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[low, high, besides], rest) = data.split_first_chunk::<3>()?;
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (message, rest) = rest.split_at(length);
        data = rest;
        Some((besides, message))
    })
}

/// An input that contains these messages.
pub(crate) fn sequence<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut input = Vec::new();
    for message in messages {
        input.extend(u16::try_from(message.len()).unwrap_or(u16::MAX).to_le_bytes());
        input.push(0);
        input.extend(message);
    }
    input
}
