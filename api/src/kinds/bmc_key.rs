//! The key of a BMC, K_g (IPMI 2.0 §13.31), as clients write it.

/// Length of a BMC key, in bytes.
const LENGTH: usize = 20;

/// Reads a BMC key: a text of 1 to 20 bytes, or `0x` and 2 to 40 hexadecimal digits. A shorter key is filled up with zeros at its end, as
/// `ipmitool` and FreeIPMI do.
///
/// # Errors
/// The reason why the text is not a key. The text is not repeated.
pub fn bmc_key(text: &str) -> Result<[u8; LENGTH], &'static str> {
    let bytes = match text.strip_prefix("0x") {
        Some(digits) => {
            octets(digits).ok_or("after 0x it has other characters than pairs of hexadecimal digits")?
        }
        None => text.as_bytes().to_vec(),
    };
    let mut key = [0; LENGTH];
    let head = key.get_mut(..bytes.len()).ok_or("it has more than 20 bytes")?;
    head.copy_from_slice(&bytes);
    if key == [0; LENGTH] {
        return Err("zeros alone mean that a BMC has no key");
    }
    Ok(key)
}

/// The octets that pairs of hexadecimal digits mean.
fn octets(digits: &str) -> Option<Vec<u8>> {
    let digits =
        digits.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect::<Option<Vec<u8>>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_and_hexadecimal_digits_are_keys() {
        assert_eq!(bmc_key("twenty octets of key").as_ref(), Ok(b"twenty octets of key"));
        assert_eq!(
            bmc_key("0x7477656e7479206f6374657473206f66206b6579").as_ref(),
            Ok(b"twenty octets of key")
        );
        assert_eq!(bmc_key("short").as_ref(), Ok(b"short\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
        assert_eq!(bmc_key("0x01Ff").map(|key| (key[0], key[1], key[2])), Ok((1, 0xff, 0)));
    }

    #[test]
    fn other_texts_are_refused_without_their_content() {
        for text in [
            "",
            "0x",
            "0x0000",
            "\0",
            "0x1",
            "0xsecret",
            "twenty-one octets key",
            &format!("0x{}", "07".repeat(21)),
        ] {
            let why = bmc_key(text).unwrap_err();
            assert!(!why.contains("secret") && !why.contains("twenty"), "{text}: {why}");
        }
    }
}
