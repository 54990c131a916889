-- Rolls a time slot up for some resources: what their single keys say now becomes the numbers of the time slot. Doing
-- it again gives the same, so what is counted in the time slot meanwhile only has it rolled up once more.
-- KEYS[1] remuda:metering:active:{service}:{resourcetype}:{timestamp}
-- KEYS[2] remuda:metering:unpacked
-- ARGV[1] usage, template of a key that takes resource and operation
-- ARGV[2] state, template of a key that takes resource and state
-- ARGV[3] slots, template of a key that takes the resource, like the next
-- ARGV[4] days
-- ARGV[5] label, service and level between colons, as they stand in a member of KEYS[2]
-- ARGV[6] slot, in milliseconds
-- ARGV[7] length, how many time slots a day has
-- ARGV[8] keep, seconds for which the single keys are kept
-- ARGV[9] names, MessagePack: operations and measures, and states
-- ARGV[10] late, template of a key that takes the resource
-- ARGV[11..] resource
-- returns nothing

local DAY = 86400000
local PACKED = '\193'
local slot, length, keep = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local counted, states = unpack(cmsgpack.unpack(ARGV[9]))
local offset = slot % DAY
local field = ('%.0f'):format((slot - offset) / DAY)

-- The newest point up to a time slot. Utapi has written points that are not numbers.
local function state_at(key, highest)
  local at = redis.call('ZRANGE', key, highest, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
  if at and not tonumber(at:match('^%-?%d+')) then
    for _, member in ipairs(redis.call('ZRANGE', key, highest, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1000)) do
      local value = tonumber(member:match('^%-?%d+'))
      if value then
        return value
      end
    end
  end
  return at and tonumber(at:match('^%-?%d+')) or 0
end

-- All columns of a day have as many numbers. A coarser one is split: its numbers belong to the first moment.
local function spread(day)
  local longest = length
  for _, column in pairs(day) do
    longest = math.max(longest, #column)
  end
  for name, column in pairs(day) do
    if #column < longest then
      local step, finer = longest / #column, {}
      for index = 1, longest do
        finer[index] = (index - 1) % step == 0 and column[(index - 1) / step + 1] or 0
      end
      day[name] = finer
    end
  end
  return longest
end

local function set(day, totals, longest, name, value)
  local column = day[name]
  if not column then
    column = {}
    for index = 1, longest do
      column[index] = 0
    end
    day[name] = column
  end
  local place = math.floor(offset * longest / DAY) + 1
  totals[name] = (totals[name] or 0) + value - column[place]
  column[place] = value
end

-- What came late in the time slot is in its single keys and points already, and will be added to the day later.
local function late_of(resource)
  local key = ARGV[10]:format(resource)
  local is_any = redis.call('EXISTS', key) == 1
  return function(name)
    return is_any and tonumber(redis.call('HGET', key, ARGV[6] .. ':' .. name) or 0) or 0
  end
end

for argument = 11, #ARGV do
  local resource = ARGV[argument]
  local slots, days = ARGV[3]:format(resource), ARGV[4]:format(resource)
  local blob = redis.call('HGET', slots, field)
  -- A day that is packed was rolled up whole.
  if not blob or blob:sub(1, 1) ~= PACKED then
    local day = blob and cmsgpack.unpack(blob) or {}
    local known = redis.call('HGET', days, field)
    local totals = known and cmsgpack.unpack(known) or {}
    local longest = spread(day)
    local keys = {}
    for index, name in ipairs(counted) do
      keys[index] = ARGV[1]:format(resource, name)
    end
    local pending = late_of(resource)
    for index, value in ipairs(redis.call('MGET', unpack(keys))) do
      if value and tonumber(value) then
        set(day, totals, longest, counted[index], tonumber(value) - pending(counted[index]))
        redis.call('EXPIRE', keys[index], keep)
      end
    end
    for _, state in ipairs(states) do
      local key = ARGV[2]:format(resource, state)
      if redis.call('ZCOUNT', key, slot, slot) > 0 then
        set(day, totals, longest, state, state_at(key, slot) - state_at(key, '(' .. slot) - pending(state))
      end
    end
    if next(day) then
      redis.call('HSET', slots, field, cmsgpack.pack(day))
      redis.call('HSET', days, field, cmsgpack.pack(totals))
      redis.call('ZADD', KEYS[2], field, field .. ARGV[5] .. resource)
    end
  end
  redis.call('SREM', KEYS[1], resource)
end
