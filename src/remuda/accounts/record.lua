-- Adds an entry to the audit log, and removes the oldest of the same account that are too many. An entry that repeats
-- another one takes its place, and says how often that was.
-- KEYS[1] remuda:audit
-- KEYS[2] remuda:audit:entries:{rank}:{account}
-- KEYS[3] remuda:audit:repeated:{digest}
-- ARGV[1] keep, entries of this account
-- ARGV[2] within, seconds in which the same is a repetition; 0 if it never is
-- ARGV[3] details, JSON of an object; of what may be repeated they are not used
-- ARGV[4..] field and value of the entry, in turn
-- returns nothing

local entry, details = {unpack(ARGV, 4)}, ARGV[3]
local can_repeat = ARGV[2] ~= '0'
if can_repeat then
  local last, times = redis.call('HGET', KEYS[3], 'entry'), redis.call('HINCRBY', KEYS[3], 'times', 1)
  if last then
    redis.call('XDEL', KEYS[1], last)
    redis.call('LREM', KEYS[2], -1, last)
    details = ('{"times":%d}'):format(times)
  else
    redis.call('EXPIRE', KEYS[3], ARGV[2])
  end
end
local id = redis.call('XADD', KEYS[1], '*', 'details', details, unpack(entry))
if can_repeat then
  redis.call('HSET', KEYS[3], 'entry', id)
end
local surplus = redis.call('RPUSH', KEYS[2], id) - ARGV[1]
if surplus > 0 then
  redis.call('XDEL', KEYS[1], unpack(redis.call('LPOP', KEYS[2], surplus)))
end
