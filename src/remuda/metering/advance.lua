-- Notes until when a timer is counted. One that has ended by then is done with.
-- KEYS[1] remuda:metering:timer:{timer}
-- KEYS[2] remuda:metering:timers
-- ARGV[1] timer
-- ARGV[2] counted, milliseconds since 1970 until which it is
-- ARGV[3] next, milliseconds at which it has more to count if it goes on
-- ARGV[4..] amounts, each with how much of it is counted
-- returns 1 if it goes on, else 0

local counted = tonumber(ARGV[2])
local ended = redis.call('HGET', KEYS[1], 'ended')
if ended and tonumber(ended) <= counted or redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  return 0
end
redis.call('HSET', KEYS[1], 'counted', ARGV[2])
for index = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[1], 'counted:' .. ARGV[index], ARGV[index + 1])
end
for _, field in ipairs(#ARGV > 3 and redis.call('HKEYS', KEYS[1]) or {}) do
  local minute = tonumber(field:match('^(%d+):'))
  if minute and minute < counted then
    redis.call('HDEL', KEYS[1], field)
  end
end
-- It may have ended since it was read.
redis.call('ZADD', KEYS[2], ended or ARGV[3], ARGV[1])
return 1
