//! AWS Signature Version 4: the canonical request, the signing keys, and how both sides use them.
