"""Numbers that several messages are bounded by."""

MAX_TOKENS = 2**31 - 1
"""No count of tokens, blocks or ids is above this: they are int32 in shared memory."""

NO_LOGPROBS = -1

DIGEST_BYTES = 32
