"""What runs inside Redis: in a cluster each script touches one session, or one blob, and so one slot.

Times are seconds since 1970 by the server's clock; a script takes its first argument for the time unless that is empty.
Scripts are sent by hash and, to a server that doesn't know them yet, once as text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the hash that Redis knows it by."""

    text: str
    sha1: str


_NOW = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
"""


def _script(text: str) -> Script:
    text = _NOW + text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


# KEYS: head, records, blobs of each session. ARGV: now; then for each session the expected head (empty: no session),
# new head, numbers of blobs and of records, blobs, records. Gives for each 1 if it was written, else the head that
# stands there, or nil. RPUSH in slices, since Lua's stack holds 8,000 values.
WRITE = _script("""
local answers, at = {}, 2
for session = 1, #KEYS / 3 do
  local key, expected, head = KEYS[3 * session - 2], ARGV[at], ARGV[at + 1]
  local blobs, records = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  at = at + 4
  local kept = redis.call('HMGET', key, 'head', 'used')
  if (kept[1] or '') ~= expected then
    answers[session] = kept[1]
  else
    local used = string.format('%.6f', math.max(now, tonumber(kept[2]) or 0))
    redis.call('HSET', key, 'head', head, 'used', used)
    for i = at, at + blobs - 1 do redis.call('SADD', KEYS[3 * session], ARGV[i]) end
    local last = at + blobs + records - 1
    for i = at + blobs, last, 1000 do
      redis.call('RPUSH', KEYS[3 * session - 1], unpack(ARGV, i, math.min(i + 999, last)))
    end
    answers[session] = 1
  end
  at = at + blobs + records
end
return answers
""")

# KEYS: head, records, blobs. ARGV: now. Gives head, idle seconds, blobs, records, all of one instant; or nil.
READ = _script("""
local kept = redis.call('HMGET', KEYS[1], 'head', 'used')
if not kept[1] then return nil end
local idle = string.format('%.6f', math.max(0, now - tonumber(kept[2])))
return {kept[1], idle, redis.call('SMEMBERS', KEYS[3]), redis.call('LRANGE', KEYS[2], 0, -1)}
""")

# KEYS: head, records, blobs. ARGV: now, idle seconds (negative: whatever they are).
# Gives the blobs of a session that is deleted now; or when it was last used, as it stays; or nil.
FORGET = _script("""
local used = redis.call('HGET', KEYS[1], 'used')
if not used then return nil end
if now - tonumber(used) <= tonumber(ARGV[2]) and tonumber(ARGV[2]) >= 0 then return used end
local blobs = redis.call('SMEMBERS', KEYS[3])
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return blobs
""")

# KEYS: blob. ARGV: now, contents.
PUT_BLOB = _script("""
redis.call('HSET', KEYS[1], 'bytes', ARGV[2], 'put', string.format('%.6f', now))
return 1
""")

# KEYS: blob, names. ARGV: now, grace seconds. Whether the blob is gone: no session names it, and it was put long ago.
FORGET_BLOB = _script("""
local put = tonumber(redis.call('HGET', KEYS[1], 'put'))
if put and (now - put <= tonumber(ARGV[2]) or redis.call('SCARD', KEYS[2]) > 0) then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
""")
