-- Sets a counter and its state to a value from this time slot on, and writes down what they were.
-- KEYS[1] {service}:{resourcetype}:{resource}:{metric}:counter
-- KEYS[2] {service}:{resourcetype}:{resource}:{metric}
-- KEYS[3] remuda:metering:active:{service}:{resourcetype}:{timestamp}
-- KEYS[4] remuda:metering:corrections
-- KEYS[5..] remuda:quota.use:{account}, of an account only
-- ARGV[1] slot, in milliseconds
-- ARGV[2] value, or '' for that of the counter
-- ARGV[3] resource
-- ARGV[4] keep, about how many entries of KEYS[4]
-- ARGV[5] quota, its name: a quota of what is stored counts what the counter does
-- ARGV[6..] field and text of the entry, in turn
-- returns the value of the counter, that of the newest point or '', and the value that both have now

local counter = redis.call('GET', KEYS[1]) or '0'
local newest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
local state = newest[1] and newest[1]:match('^%-?%d+') or ''
local value = ARGV[2] == '' and counter or ARGV[2]
if counter ~= value or state ~= value then
  -- A client whose clock is ahead may have written a later one.
  local slot = newest[2] and tonumber(newest[2]) > tonumber(ARGV[1]) and newest[2] or ARGV[1]
  redis.call('SET', KEYS[1], value)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], slot, slot)
  redis.call('ZADD', KEYS[2], slot, value .. ':' .. slot)
  redis.call('SADD', KEYS[3], ARGV[3])
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[4], '*', 'counter', counter, 'state', state, 'value', value,
    unpack(ARGV, 6))
  if KEYS[5] and redis.call('HEXISTS', KEYS[5], ARGV[5]) == 1 then
    redis.call('HSET', KEYS[5], ARGV[5], value)
  end
end
return {counter, state, value}
