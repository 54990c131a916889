-- Tries to write, without a change: deletes a key that is not there.
-- KEYS[1] {absent}
-- returns why Redis refuses that, or nothing when it does not
local reply = redis.pcall('DEL', KEYS[1])
return type(reply) == 'table' and reply.err or ''
