-- Replaces a rolled-up day by the same with what came late, or by its packed form, unless it was changed meanwhile.
-- KEYS[1] remuda:metering:slots:{service}:{resourcetype}:{resource}
-- KEYS[2] remuda:metering:days:{service}:{resourcetype}:{resource}
-- KEYS[3] remuda:metering:late:{service}:{resourcetype}:{resource}
-- KEYS[4] remuda:metering:late
-- KEYS[5] remuda:metering:unpacked
-- KEYS[6..] {service}:{resourcetype}:{resource}:{metric}
-- ARGV[1] day
-- ARGV[2] before, the day as it was read; '' for none
-- ARGV[3] after, the day as it is to be
-- ARGV[4] totals of it
-- ARGV[5] member, the resource as it stands in KEYS[4], and with the day before it in KEYS[5]
-- ARGV[6] packed, 1 if the day is packed now
-- ARGV[7] trim, points of states before this time slot are in rolled-up days; only the newest of them stays
-- ARGV[8] pack_with, the day together with which this one is packed, if that is not noted yet
-- ARGV[9..] late field and its value as it was read, in turn
-- returns 1; 0 if something was changed meanwhile

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 0
end
for index = 9, #ARGV, 2 do
  if redis.call('HGET', KEYS[3], ARGV[index]) ~= ARGV[index + 1] then
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
for index = 9, #ARGV, 2 do
  redis.call('HDEL', KEYS[3], ARGV[index])
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('SREM', KEYS[4], ARGV[5])
end
if ARGV[6] == '1' then
  redis.call('ZREM', KEYS[5], ARGV[1] .. ':' .. ARGV[5])
  for index = 6, #KEYS do
    local newest = redis.call('ZRANGE', KEYS[index], '(' .. ARGV[7], '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    if newest[2] then
      redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', '(' .. newest[2])
    end
  end
else
  -- What came late was the first of this day.
  redis.call('ZADD', KEYS[5], 'NX', ARGV[8], ARGV[1] .. ':' .. ARGV[5])
end
return 1
